"""The one retry loop: what the server asks for is honoured, and a night is not spent waiting."""

from __future__ import annotations

import pytest
from tenacity import wait_fixed, wait_none

from agent.llm.registry import make_provider
from agent.llm.retry import RetryPolicy, Transient, retry_after_s, with_retries
from agent.llm.types import LLMError
from tests.loopback import Fault, Loopback, in_turn
from tests.unit.agent.llm.support import KEY, REQUEST, settings_for


class Failing:
    """Fails with these errors in turn, then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def test_the_servers_hint_is_waited_for_instead_of_our_own_guess() -> None:
    slept: list[float] = []
    policy = RetryPolicy(max_attempts=5, max_retry_s=900, wait=wait_fixed(7), sleep=slept.append)
    attempt = Failing(Transient("busy", retry_after_s=42), Transient("busy", retry_after_s=0), Transient("busy"))
    assert with_retries(attempt, policy) == "answer"
    assert slept == [42, 0, 7]


def test_a_hint_beyond_our_deadline_ends_the_request_at_once_and_says_why() -> None:
    slept: list[float] = []
    policy = RetryPolicy(max_attempts=5, max_retry_s=900, wait=wait_none(), sleep=slept.append)
    attempt = Failing(Transient("slow down", retry_after_s=3600))
    with pytest.raises(LLMError, match=r"asks for 3600 s and llm\.max_retry_s is 900 s") as caught:
        with_retries(attempt, policy)
    assert caught.value.kind == "exhausted"
    assert slept == []
    assert attempt.calls == 1


def test_the_waits_together_stay_within_the_deadline() -> None:
    slept: list[float] = []
    policy = RetryPolicy(max_attempts=1000, max_retry_s=100, wait=wait_fixed(30), sleep=slept.append)
    with pytest.raises(LLMError, match=r"llm\.max_retry_s is 100 s"):
        with_retries(Failing(*[Transient("busy")] * 50), policy)
    assert slept == [30, 30, 30]


def test_what_is_not_transient_is_never_tried_again() -> None:
    policy = RetryPolicy(max_attempts=5, max_retry_s=900, wait=wait_none())
    for error in (LLMError("auth", "no"), RuntimeError("a bug")):
        attempt = Failing(error)
        with pytest.raises(type(error)):
            with_retries(attempt, policy)
        assert attempt.calls == 1


def test_a_sleeper_that_raises_stops_the_wait() -> None:
    """Ctrl-C during a long back-off."""

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    policy = RetryPolicy(max_attempts=5, max_retry_s=900, wait=wait_fixed(60), sleep=interrupted)
    with pytest.raises(KeyboardInterrupt):
        with_retries(Failing(Transient("busy")), policy)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "12"}, 12.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:02:00 GMT"}, 20.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_every_form_of_the_hint_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, now=100.0) == seconds


@pytest.mark.parametrize("name", ["anthropic", "openai", "openai-compatible"])
def test_the_hint_reaches_the_loop_from_each_sdk(name: str) -> None:
    slept: list[float] = []
    busy = Fault("status", 429, {"message": "slow down"}, headers={"retry-after": "17"})
    with Loopback(in_turn(busy, "fine")) as server:
        provider = make_provider(settings_for(name, server), environ={"LLM_TEST_KEY": KEY}, sleep=slept.append)
        assert provider.complete(REQUEST).text == "fine"
    assert slept == [17.0]
