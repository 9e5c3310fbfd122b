"""Every way in which an API fails, through each SDK, as a run meets it: how it ends, after how many requests, for how
much money. Journal, budget and asking are the run's own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from tenacity import wait_fixed

from agent.config import BudgetSection
from agent.errors import Interrupted, ModelUnusable
from agent.events import RequestFailed
from agent.events_llm import RequestRetried
from agent.journal import read_events
from agent.llm.types import LLMError, Reply, Usage
from agent.state_fold import fold
from tests.loopback import OVERLOADED, Asked, Fault, Loopback, in_turn
from tests.unit.agent.llm.asking import AskingRun, branches
from tests.unit.agent.llm.support import KEY, REMOTE, REQUEST

each = pytest.mark.parametrize("name", REMOTE)
ATTEMPTS = 3
HALF = "half an answer"


def error(kind: str, message: str) -> Mapping[str, str]:
    return {"type": kind, "code": kind, "message": message}


# What an outage is: tried again until the attempts are used up. Whether an attempt may have cost something.
PASSES: Mapping[str, tuple[Fault, bool]] = {
    "rate limit": (Fault("status", 429, error("rate_limit_error", "slow down")), False),
    "server error": (Fault("status", 500), False),
    "gateway, not JSON": (Fault("status", 503, "upstream connect error"), False),
    "overloaded": (Fault("status", 529, error("overloaded_error", "Overloaded")), False),
    "overloaded inside a 200 stream": (OVERLOADED, True),
    "error body with 200": (Fault("error-200", error={"code": 502, "message": "provider is down"}), False),
    "connection drops": (Fault("drop", text=HALF), True),
    "stream is cut": (Fault("cut", text=HALF), True),
    "stream is garbage": (Fault("garbage", text=HALF), True),
    "stream falls silent": (Fault("hang"), True),
    "no answer at all": (Fault("silent"), False),
}
# What waiting does not cure: one request, and the run ends with exit code 4 and a line that helps.
ENDS: Mapping[str, tuple[Fault, str, str]] = {
    "wrong key": (Fault("status", 401, error("authentication_error", "invalid key")), "auth", "LLM_TEST_KEY"),
    "no permission": (Fault("status", 403, error("permission_error", "not for you")), "auth", "not for you"),
    "unknown model": (Fault("status", 404, error("not_found_error", "no such model")), "bad-request", "llm.model"),
    "bad request": (Fault("status", 400, "what"), "bad-request", "what"),
    "too long": (
        Fault("status", 400, error("invalid_request_error", "input length and max_tokens exceed context limit: 2 > 1")),
        "too-long",
        "llm.max_output_tokens",
    ),
    "quota that does not come back": (
        Fault("status", 429, error("insufficient_quota", "check your plan and billing")),
        "unavailable",
        "waiting will not help",
    ),
    "no credit": (Fault("status", 400, error("billing_error", "credit balance is too low")), "unavailable", "Credit"),
    "a proxy's page": (Fault("html"), "unavailable", "proxy"),
    "error body with 200": (Fault("error-200", error="model not loaded"), "unavailable", "model not loaded"),
    "refusal": (Fault("refusal"), "refusal", "refused"),
}
# What is an answer, billed, and never compiled: stop reason, and text.
ANSWERS: Mapping[str, tuple[Fault, str, str]] = {
    "empty": (Fault("empty"), "other", ""),
    "reasoning ate the limit": (Fault("thought-only"), "truncated", ""),
    "cut at the limit": (Fault("truncated", text="```cpp\nint x"), "truncated", "```cpp\nint x"),
    "cut at the window": (Fault("window", text="```cpp\nint x"), "truncated", "```cpp\nint x"),
}


@each
@pytest.mark.parametrize("mode", PASSES)
def test_an_outage_is_tried_again_and_what_broke_off_is_counted(tmp_path: Path, name: str, mode: str) -> None:
    fault, charged = PASSES[mode]
    silent = fault.kind in ("hang", "silent")
    (tmp_path / "passing").mkdir()
    with (
        Loopback(in_turn(fault, "whole")) as server,
        AskingRun(tmp_path / "passing", name, server, timeout_s=0.8 if silent else 10.0) as run,
    ):
        reply = run.outcome()
        assert isinstance(reply, Reply)
        assert reply.text == "whole"
        assert server.count == 2
        assert (run.cost.calls, run.cost.retried) == (1, 1)
        worst = run.worst_usd(REQUEST)
        assert None not in (reply.usd, run.cost.usd, worst)
        lost = (run.cost.usd or 0.0) - (reply.usd or 0.0)
        assert 0 < lost <= (worst or 0.0) if charged else lost == pytest.approx(0)

    with (
        Loopback(lambda asked: fault) as server,
        AskingRun(tmp_path, name, server, max_attempts=ATTEMPTS, timeout_s=0.2 if silent else 10.0) as run,
    ):
        assert run.outcome() == "exhausted"
        assert server.count == ATTEMPTS
        assert run.cost.usd == pytest.approx(ATTEMPTS * lost, rel=0.2)
    # What a killed process would find on the disk.
    assert fold(read_events(tmp_path / "events.jsonl")[0]).cost == run.cost


@each
@pytest.mark.parametrize("mode", ENDS)
def test_what_waiting_does_not_cure_ends_the_run_after_one_request(tmp_path: Path, name: str, mode: str) -> None:
    fault, kind, says = ENDS[mode]
    with Loopback(lambda asked: fault) as server, AskingRun(tmp_path, name, server) as run:
        assert run.outcome() == kind
        assert server.count == 1
        (failed,) = run.journal.all(RequestFailed)
    assert says in failed.message
    assert "\n" not in failed.message
    assert KEY not in (tmp_path / "events.jsonl").read_text()
    assert run.cost.retried == 0
    if mode == "refusal":
        assert run.cost.usd is not None
        assert run.cost.usd > 0
        assert run.cost.tokens["output"] > 0
    else:
        assert run.cost.usd == 0


@each
def test_a_proxys_page_is_waited_out_where_the_server_has_answered_before(tmp_path: Path, name: str) -> None:
    page = Fault("html")
    with Loopback(in_turn("first", page, page, "second")) as server, AskingRun(tmp_path, name, server) as run:
        assert isinstance(run.outcome(), Reply)
        reply = run.outcome(branches(1)[0])
        assert isinstance(reply, Reply)
        assert reply.text == "second"
        assert server.count == 4
        assert run.cost.retried == 2


@each
@pytest.mark.parametrize("mode", ANSWERS)
def test_half_an_answer_is_billed_and_told_from_a_whole_one(tmp_path: Path, name: str, mode: str) -> None:
    fault, stop, text = ANSWERS[mode]
    with Loopback(lambda asked: fault) as server, AskingRun(tmp_path, name, server) as run:
        reply = run.outcome()
        assert server.count == 1
    assert isinstance(reply, Reply)
    assert (reply.stop, reply.text) == (stop, text)
    assert run.cost.usd == reply.usd
    assert run.cost.usd
    assert (run.cost.calls, run.cost.retried) == (1, 0)


@each
def test_a_reply_without_usage_counts_at_its_most(tmp_path: Path, name: str) -> None:
    """Else a server that says nothing would be free, and no budget would ever be used up."""
    with (
        Loopback(lambda asked: "x", tokens=lambda asked, text: None) as server,
        AskingRun(tmp_path, name, server) as run,
    ):
        reply = run.outcome()
        assert isinstance(reply, Reply)
        assert reply.usd is None
        assert run.cost.usd == run.worst_usd(REQUEST)
        assert sum(run.cost.tokens.values()) >= REQUEST.max_output_tokens


@each
def test_one_branch_that_is_refused_does_not_waste_the_others(tmp_path: Path, name: str) -> None:
    def answer(asked: Asked) -> str | Fault:
        return Fault("refusal") if "b1" in asked.user else "fine"

    with Loopback(answer) as server, AskingRun(tmp_path, name, server) as run:
        answers = run.ask_all(branches(3))
        assert server.count == 3
    assert [isinstance(a, Reply) for a in answers] == [True, False, True]
    refused = answers[1]
    assert isinstance(refused, LLMError)
    assert refused.kind == "refusal"


def test_a_wrong_key_ends_the_run_even_beside_answers(tmp_path: Path) -> None:
    def answer(asked: Asked) -> str | Fault:
        return Fault("status", 401, error("authentication_error", "no")) if "b1" in asked.user else "fine"

    with (
        Loopback(answer) as server,
        AskingRun(tmp_path, "openai", server) as run,
        pytest.raises(ModelUnusable, match="LLM_TEST_KEY"),
    ):
        run.ask_all(branches(2))


@each
def test_attempts_that_break_off_use_the_budget_up_and_never_more(tmp_path: Path, name: str) -> None:
    request = branches(1, max_output_tokens=12_000)[0]
    with (
        Loopback(lambda asked: Fault("drop", text="x" * 30_000, after=30)) as server,
        AskingRun(tmp_path, name, server, BudgetSection(usd=0.25), max_attempts=50) as run,
    ):
        assert run.outcome(request) == "budget"
        assert 1 < server.count < 10
        assert run.cost.usd is not None
        assert 0.05 < run.cost.usd <= 0.25


def test_a_wait_that_would_outlast_the_minutes_is_not_begun(tmp_path: Path) -> None:
    busy = Fault("status", 429, error("rate_limit_error", "later"), headers={"retry-after": "300"})
    with (
        Loopback(lambda asked: busy) as server,
        AskingRun(tmp_path, "anthropic", server, BudgetSection(minutes=2)) as run,
    ):
        began = time.monotonic()
        assert run.outcome() == "budget"
        assert time.monotonic() - began < 5
        assert server.count == 1


def test_the_wait_is_on_disk_before_it_begins(tmp_path: Path) -> None:
    """A machine that is switched off during a back-off loses nothing."""
    busy = Fault("status", 429, error("rate_limit_error", "slow down"))
    stop = threading.Event()
    with (
        Loopback(lambda asked: busy) as server,
        AskingRun(tmp_path, "openai", server, wait=wait_fixed(60), stopped=stop.is_set) as run,
    ):
        asking = threading.Thread(target=_swallow, args=(run,), daemon=True)
        asking.start()
        end = time.monotonic() + 5
        while not run.journal.all(RequestRetried) and time.monotonic() < end:
            time.sleep(0.01)
        (logged,) = [e for e in read_events(tmp_path / "events.jsonl")[0] if isinstance(e, RequestRetried)]
        assert (logged.attempt, logged.wait_s, logged.usage) == (1, 60, Usage())
        assert "slow down" in logged.message
        stop.set()
        began = time.monotonic()
        asking.join()
        assert time.monotonic() - began < 1


@pytest.mark.parametrize("kind", ["hang", "silent"])
@each
def test_ctrl_c_does_not_wait_for_a_request_that_hangs(tmp_path: Path, name: str, kind: str) -> None:
    stop = threading.Event()
    fault = Fault("hang") if kind == "hang" else Fault("silent")
    with Loopback(lambda asked: fault) as server, AskingRun(tmp_path, name, server, stopped=stop.is_set) as run:
        threading.Timer(0.2, stop.set).start()
        began = time.monotonic()
        with pytest.raises(Interrupted):
            run.ask_all(branches(4))
        assert time.monotonic() - began < 1.2  # 0.2 s until it comes, and one to answer


def _swallow(run: AskingRun) -> None:
    with pytest.raises(Interrupted):
        run.ask_all([REQUEST])


TOO_MUCH = (
    "max_tokens: 128000 > 64000, the maximum allowed",
    "This model's maximum context length is 131072 tokens. However, you requested 140000 tokens",
)


@each
@pytest.mark.parametrize("said", [None, *TOO_MUCH])
def test_a_cut_answer_gets_more_room_where_the_server_gives_it(tmp_path: Path, name: str, said: str | None) -> None:
    def answer(asked: Asked) -> str | Fault:
        limit = asked.body.get("max_tokens") or asked.body.get("max_output_tokens") or 0
        too_much = said is not None and limit > 64000
        return Fault("status", 400, error("invalid_request_error", said or "")) if too_much else "whole"

    with Loopback(answer) as server, AskingRun(tmp_path, name, server) as run:
        reply = run.outcome(branches(1, max_output_tokens=128_000)[0])
        assert isinstance(reply, Reply)
        assert reply.text == "whole"
        assert server.count == (1 if said is None else 2)
