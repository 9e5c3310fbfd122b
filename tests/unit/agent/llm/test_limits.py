"""K requests at once: within what the server's headers allow, and with one prefix paid for once."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from agent.events_llm import RequestRetried
from agent.llm.limits import Throttle, Window, told_limits
from agent.llm.types import Reply
from tests.loopback import Asked, Fault, Loopback, Tokens
from tests.unit.agent.llm.asking import AskingRun, branches
from tests.unit.agent.llm.support import REMOTE

each = pytest.mark.parametrize("name", REMOTE)


class Bucket:
    """A server that admits so many requests, and `refill` more each second; it says so as each API does."""

    def __init__(self, limit: int, refill: float) -> None:
        self.limit, self.refill = limit, refill
        self.refused = 0
        self._left, self._at = float(limit), time.monotonic()
        self._lock = threading.Lock()

    def answer(self, asked: Asked) -> str | Fault:
        with self._lock:
            self._fill()
            if self._left < 1:
                self.refused += 1
                return Fault("status", 429, {"type": "rate_limit_error", "message": "slow down"})
            self._left -= 1
        return "fine"

    def headers(self, asked: Asked) -> Mapping[str, str]:
        with self._lock:
            self._fill()
            left, full_in = int(self._left), (self.limit - self._left) / self.refill
        if asked.api == "anthropic":
            reset = (datetime.now(timezone.utc) + timedelta(seconds=full_in)).isoformat().replace("+00:00", "Z")
            found = {"limit": str(self.limit), "remaining": str(left), "reset": reset}
            return {f"anthropic-ratelimit-requests-{name}": value for name, value in found.items()}
        found = {"limit": str(self.limit), "remaining": str(left), "reset": f"{int(full_in * 1000) + 1}ms"}
        return {f"x-ratelimit-{name}-requests": value for name, value in found.items()}

    def _fill(self) -> None:
        now = time.monotonic()
        self._left = min(self.limit, self._left + (now - self._at) * self.refill)
        self._at = now


@each
def test_k_requests_at_once_stay_within_the_limit_that_the_first_answer_told(tmp_path: Path, name: str) -> None:
    bucket = Bucket(limit=3, refill=10)
    with Loopback(bucket.answer) as server, AskingRun(tmp_path, name, server) as run:
        server.headers = bucket.headers
        run.outcome()
        began = time.monotonic()
        answers = run.ask_all(branches(8))
        assert time.monotonic() - began > 0.4
        assert bucket.refused == 0
        assert server.count == 9
    assert all(isinstance(answer, Reply) for answer in answers)


@each
def test_when_one_is_told_to_wait_the_others_wait_as_well(tmp_path: Path, name: str) -> None:
    """Else K requests are refused K times, and some servers count refused ones against the limit."""
    came: list[float] = []
    began = time.monotonic()

    def answer(asked: Asked) -> str | Fault:
        came.append(time.monotonic() - began)
        error = {"type": "rate_limit_error", "message": "slow down"}
        return Fault("status", 429, error, headers={"retry-after-ms": "600"}) if asked.number == 0 else "fine"

    with Loopback(answer) as server, AskingRun(tmp_path, name, server) as run:
        first = threading.Thread(target=run.outcome)
        first.start()
        while not run.journal.all(RequestRetried):
            time.sleep(0.01)
        run.ask_all(branches(3))
        first.join()
    assert len(came) == 5
    assert min(came[1:]) > came[0] + 0.55


def test_a_limit_told_wrong_delays_but_never_fails() -> None:
    slept: list[float] = []
    throttle = Throttle(clock=lambda: 100.0)
    throttle.settle({}, {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "400s"})
    throttle.admit(10, slept.append, longest_s=900)
    assert slept == [400.0, 400.0]


def test_tokens_are_waited_for_only_as_long_as_they_take_to_refill() -> None:
    slept: list[float] = []
    now = [0.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    throttle = Throttle(clock=lambda: now[0])
    told = {"limit": "60000", "remaining": "1000", "reset": "59s"}
    throttle.settle({}, {f"x-ratelimit-{name}-tokens": value for name, value in told.items()})
    throttle.admit(1000, sleep, 900)
    assert slept == []
    throttle.admit(5000, sleep, 900)
    assert sum(slept) == pytest.approx(5, abs=0.1)


@pytest.mark.parametrize(
    ("headers", "limits"),
    [
        ({}, {}),
        (
            {
                "Anthropic-Ratelimit-Input-Tokens-Limit": "50000",
                "Anthropic-Ratelimit-Input-Tokens-Remaining": "49000",
                "Anthropic-Ratelimit-Input-Tokens-Reset": "1970-01-01T00:17:10Z",
            },
            {"input-tokens": Window(49000, 50000, 30)},
        ),
        (
            {
                "Date": "Thu, 01 Jan 1970 00:10:00 GMT",
                "anthropic-ratelimit-requests-remaining": "3",
                "anthropic-ratelimit-requests-reset": "1970-01-01T00:10:05Z",
            },
            {"requests": Window(3, None, 5)},
        ),
        (
            {"x-ratelimit-remaining-requests": "4", "x-ratelimit-reset-requests": "6m0s"},
            {"requests": Window(4, None, 360)},
        ),
        ({"x-ratelimit-remaining-tokens": "4", "x-ratelimit-reset-tokens": "20ms"}, {"tokens": Window(4, None, 0.02)}),
        ({"x-ratelimit-remaining-tokens": "many", "x-ratelimit-reset-tokens": "20ms"}, {}),
        ({"x-ratelimit-remaining-tokens": "4", "x-ratelimit-reset-tokens": "soon"}, {}),
    ],
)
def test_limits_are_read_as_each_api_tells_them(headers: dict[str, str], limits: dict[str, Window]) -> None:
    assert told_limits(headers, now=1000.0) == limits


@each
def test_a_prefix_shared_by_k_branches_is_written_to_the_cache_once(tmp_path: Path, name: str) -> None:
    """A server can read it only once the first answer has begun: sent in one instant, all K would pay for writing."""
    cached: set[str] = set()
    read: dict[int, bool] = {}
    all_at_once = threading.Barrier(4)

    def answer(asked: Asked) -> str:
        prefix = asked.user[:9000]
        if len(prefix) < 9000:
            all_at_once.wait(10)
            return "fine"
        read[asked.number] = prefix in cached
        time.sleep(0.2)  # the prompt is being read
        cached.add(prefix)
        return "fine"

    def tokens(asked: Asked, text: str) -> Tokens:
        return Tokens(3300, 3000, 0, 10) if read.get(asked.number) else Tokens(3300, 0, 3000, 10)

    with Loopback(answer, tokens=tokens) as server, AskingRun(tmp_path, name, server) as run:
        run.ask_all(branches(4, prefix="float acc = 0.0f; // " * 500))
        assert list(read.values()).count(False) == 1
        assert run.cost.tokens["cache_read"] / (4 * 3300) == pytest.approx(0.68, abs=0.01)

        # A short prefix is not cached by any server: nobody waits for nothing.
        run.ask_all([replace(r, step=replace(r.step, iteration=2)) for r in branches(4)])
        assert server.count == 8
