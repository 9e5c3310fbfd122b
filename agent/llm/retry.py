"""The one owner of retries: tenacity, an allow-list of what may be tried again, and bounds that hold.

The SDKs' own retries are off. Providers only classify: `Transient` may be tried again, `LLMError` ends the request.
"""

from __future__ import annotations

import email.utils
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential
from tenacity.wait import wait_base

from agent.llm.types import LLMError, Retried, Spent, Step

T = TypeVar("T")

RETRYABLE_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
"""HTTP statuses worth another attempt: timeouts, conflicts, rate limits, overload, gateways. Nothing else is."""

BACK_OFF = wait_random_exponential(multiplier=5, max=120)
"""Full jitter: uniform between 0 and 5, 10, 20 … 120 s, so that K branches do not come back at the same instant."""


class Transient(Exception):
    """A failure that another attempt may cure. Internal to the providers: the loop never sees it.

    Attributes:
        retry_after_s: what the server asked for, None when it did not say.
        context: request id and the like.
        spent: what the attempt may have cost, None where nothing was answered.
    """

    def __init__(
        self,
        message: str,
        retry_after_s: float | None = None,
        context: Mapping[str, str] | None = None,
        spent: Spent | None = None,
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.context: Mapping[str, str] = context or {}
        self.spent = spent


def untold(retried: Retried) -> None:
    """Nobody wants to know of retries."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of the retry loop.

    Attributes:
        max_attempts: how often a request is sent, the first time included.
        max_retry_s: no wait begins that would end later than this many seconds after the first attempt began.
        wait: seconds between attempts where the server does not say; tests pass `tenacity.wait_none()`.
        sleep: how to wait; a caller that must stop early passes a function that raises.
        retried: told of each wait before it begins; what it raises ends the request.
    """

    max_attempts: int
    max_retry_s: float
    wait: wait_base = BACK_OFF
    sleep: Callable[[float], None] = time.sleep
    retried: Callable[[Retried], None] = untold


def with_retries(attempt: Callable[[], T], policy: RetryPolicy, step: Step | None = None) -> T:
    """Call `attempt` until it answers, within the policy, which is told of the waits of a `step`.

    Raises:
        LLMError: the attempt's own, at once; `exhausted` when the attempts or the time are used up.
    """
    retrying = Retrying(
        retry=retry_if_exception_type(Transient),
        wait=lambda state: _wait_s(state, policy),
        stop=lambda state: _must_stop(state, policy),
        before_sleep=lambda state: _tell(state, policy, step),
        sleep=policy.sleep,
        reraise=True,
    )
    try:
        return retrying(attempt)
    except Transient as error:
        last, attempts = error, int(retrying.statistics["attempt_number"])
    message = f"{last}; gave up after {attempts} attempt{'s' if attempts > 1 else ''}"
    if attempts < policy.max_attempts:
        asked = "" if last.retry_after_s is None else f"the server asks for {last.retry_after_s:.0f} s and "
        message += f": {asked}llm.max_retry_s is {policy.max_retry_s:g} s"
    raise LLMError("exhausted", message, {**last.context, "attempts": str(attempts)}, last.spent)


def _transient(state: RetryCallState) -> Transient | None:
    error = state.outcome.exception() if state.outcome else None
    return error if isinstance(error, Transient) else None


def _wait_s(state: RetryCallState, policy: RetryPolicy) -> float:
    error = _transient(state)
    if error is not None and error.retry_after_s is not None:
        return error.retry_after_s
    return float(policy.wait(state))


def _tell(state: RetryCallState, policy: RetryPolicy, step: Step | None) -> None:
    error = _transient(state)
    if error is not None and step is not None:
        policy.retried(Retried(step, state.attempt_number, str(error), state.upcoming_sleep, error.spent))


def _must_stop(state: RetryCallState, policy: RetryPolicy) -> bool:
    # Time slept counts even where the sleeper keeps its own clock.
    spent = max(state.seconds_since_start or 0.0, state.idle_for)
    return state.attempt_number >= policy.max_attempts or spent + state.upcoming_sleep > policy.max_retry_s


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds a server asks to wait: `retry-after-ms`, or `retry-after` as a number or an HTTP date. None: not said.

    Args:
        headers: response headers, any case.
        now: Unix time in seconds, for the date form.
    """
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            seconds = float(lower[name]) * scale
        except (KeyError, ValueError):
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(lower["retry-after"]).timestamp() - now)
    except (KeyError, ValueError):
        return None
