"""Rate limits as the servers tell them in response headers: a request waits for its share instead of being refused."""

from __future__ import annotations

import email.utils
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

_KINDS = ("requests", "tokens", "input-tokens", "output-tokens")
_GO = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SKEW_S = 2.0
_LOOK_AGAIN_S = 0.02
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class Window:
    """One limit at the moment it was told.

    Attributes:
        remaining: what may still be sent.
        limit: what may be sent when it is full; None: not said.
        reset_s: seconds until it is full again.
    """

    remaining: float
    limit: float | None
    reset_s: float


def told_limits(headers: Mapping[str, str], now: float) -> dict[str, Window]:
    """The limits that response headers tell, by kind (`requests`, `tokens`, `input-tokens`, `output-tokens`).

    `anthropic-ratelimit-<kind>-remaining` with its reset as a date, or OpenAI's `x-ratelimit-remaining-<kind>` with its
    reset as a duration (`6m0s`, `20ms`). A kind that is not told whole is left out.

    Args:
        headers: response headers, any case.
        now: Unix time in seconds, for the dates.
    """
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    now = _servers_clock(lower, now)
    found = {}
    for kind in _KINDS:
        for name in (f"anthropic-ratelimit-{kind}-{{}}", f"x-ratelimit-{{}}-{kind}"):
            remaining, reset = lower.get(name.format("remaining")), lower.get(name.format("reset"))
            seconds = None if reset is None else _reset_s(reset, now)
            if remaining is None or seconds is None:
                continue
            with suppress(ValueError):
                limit = lower.get(name.format("limit"))
                found[kind] = Window(float(remaining), float(limit) if limit else None, seconds)
    return found


def _servers_clock(headers: Mapping[str, str], now: float) -> float:
    """The server's time where ours is wrong, else ours, which is finer: dates are the server's."""
    with suppress(KeyError, ValueError):
        theirs = email.utils.parsedate_to_datetime(headers["date"]).timestamp()
        return theirs if abs(theirs - now) > _SKEW_S else now
    return now


def _reset_s(text: str, now: float) -> float | None:
    parts = _GO.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    try:
        # Python 3.10 does not know the Z.
        return max(0.0, datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() - now)
    except ValueError:
        return None


class Throttle:
    """The limits of one model at one server, kept by all who ask it. Thread-safe.

    Limits refill evenly until they are full again. What was sent since the last answer counts as taken; a limit that
    nobody has told is none.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._told: dict[str, tuple[float, Window]] = {}
        self._unanswered: list[Mapping[str, float]] = []
        self._held: dict[int, float] = {}

    def admit(self, input_tokens: int, sleep: Callable[[float], None], longest_s: float) -> Mapping[str, float]:
        """Wait until the request fits, `longest_s` at most: then the server has the word. What it takes is set aside.

        Returns:
            what was set aside, for `settle`.
        """
        waited = 0.0
        while True:
            with self._lock:
                now = self._clock()
                takes = {"requests": 1.0, "tokens": input_tokens, "input-tokens": input_tokens, "output-tokens": 1.0}
                # Who was told to wait does so by itself.
                held = [until - now for who, until in self._held.items() if who != threading.get_ident()]
                delay = max([0.0, *held, *(self._delay(kind, takes[kind], now) for kind in self._told)])
                if delay <= 0 or waited + delay > longest_s:
                    self._unanswered.append(takes)
                    return takes
            sleep(delay)
            waited += delay

    def settle(self, takes: Mapping[str, float], headers: Mapping[str, str], hold_s: float | None = None) -> None:
        """An answer has begun, or will not come: learn what its headers tell.

        Args:
            takes: what `admit` returned; a second time is no harm.
            headers: of the answer, empty where none came.
            hold_s: seconds in which the server wants nothing at all.
        """
        with self._lock:
            now = self._clock()
            self._unanswered = [other for other in self._unanswered if other is not takes]
            for kind, window in told_limits(headers, time.time()).items():
                # Answers come in another order than the server counted them in: the one that leaves less is later.
                held = self._told.get(kind)
                if held is None or _free(*held, now) >= _free(now, window, now):
                    self._told[kind] = (now, window)
            self._held = {who: until for who, until in self._held.items() if until > now}
            if hold_s is not None:
                self._held[threading.get_ident()] = now + hold_s

    def _delay(self, kind: str, need: float, now: float) -> float:
        """Seconds until `need` of a kind is free."""
        told, window = self._told[kind]
        left = told + window.reset_s - now
        if window.limit is not None:
            need = min(need, window.limit)  # a request larger than the whole limit goes when that is full
        lacks = need + sum(other[kind] for other in self._unanswered) - _free(told, window, now)
        if lacks <= 0:
            return 0.0
        if window.limit is None or window.limit <= window.remaining or left <= 0:
            return max(left, _LOOK_AGAIN_S)
        return max(lacks * window.reset_s / (window.limit - window.remaining), _LOOK_AGAIN_S)


def _free(told: float, window: Window, now: float) -> float:
    """What is free of a limit that was told at `told`."""
    left = told + window.reset_s - now
    if left <= 0:
        return math.inf if window.limit is None else window.limit
    if window.limit is None:
        return window.remaining
    return window.limit - (window.limit - window.remaining) * left / window.reset_s
