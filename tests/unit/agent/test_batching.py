"""What a user loses when a batch goes wrong: half the price, a night's wait, or the answers that were paid for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tenacity import wait_none

from agent.asking import Asker
from agent.batching import Batching, Waits
from agent.budget import Budget, BudgetExhausted
from agent.config import BudgetSection
from agent.config_llm import LLMSection
from agent.errors import Interrupted, ModelUnusable
from agent.events import ReplyReceived, RequestFailed, RequestSent
from agent.events_batch import BatchAccepted, BatchEnded, BatchSent
from agent.journal import Journal
from agent.llm.prices import cost_usd, load_prices, price_for
from agent.llm.recording import read_recording
from agent.llm.registry import make_batches, make_provider
from agent.llm.types import LLMError, Reply, Request, Step
from agent.roles import Providers, Roles
from agent.state import State
from agent.state_fold import fold
from tests.loopback import Asked, Fault
from tests.loopback_batch import BatchLoopback, branch_steps

ENVIRON = {"LLM_TEST_KEY": "sk-test-5e3a91"}
MODELS = {"anthropic": "claude-opus-5", "openai": "gpt-5"}
BOTH = pytest.mark.parametrize("provider", ["anthropic", "openai"])
WAITS = Waits(first_s=0.01, longest_s=0.02, cancel_s=0.1)
CLOSED = Fault("status", status=500, error={"type": "api_error", "message": "it broke"})


def requests(*names: str, attempt: int = 0) -> list[Request]:
    return [
        Request(Step(1, "branch", name, attempt), "You write kernels.", "The plan.", f"Branch {name}.", 1000)
        for name in names or ("b0", "b1")
    ]


def kernel(asked: Asked) -> str | Fault:
    """A text with line separators inside, which must come back byte for byte."""
    return f"a kernel for {asked.user[-3:]}\u2028\u0085 end"


class Bench:
    """One session of a run: an asker over a journal in `folder`."""

    def __init__(self, folder: Path, server: BatchLoopback, provider: str, **settings: object) -> None:
        llm = {
            "provider": provider,
            "model": MODELS[provider],
            "base_url": server.base_url if provider == "anthropic" else server.v1_url,
            "api_key_env": "LLM_TEST_KEY",
            "mode": "batch",
            "max_attempts": 2,
        }
        minutes = settings.pop("deadline_minutes", 60.0)
        budget = Budget(BudgetSection.model_validate(settings.pop("budget", {})))
        self.stopped = threading.Event()
        self.journal = Journal(folder)
        roles = Roles(LLMSection.model_validate({**llm, **settings}))

        self.budget = budget
        self.batching = Batching(
            Providers(roles, lambda s: make_batches(s, environ=ENVIRON, wait=wait_none())),
            roles.of,
            self.journal,
            budget,
            60.0 * float(str(minutes)),
            self.stopped.is_set,
            WAITS,
        )
        providers = Providers(roles, lambda s: make_provider(s, environ=ENVIRON, wait=wait_none()))
        self.asker = Asker(providers, roles.of, self.journal, budget, self.stopped.is_set, self.batching)

    @property
    def state(self) -> State:
        return fold(self.journal.events)

    def ask(self, *names: str) -> list[str]:
        answers = self.asker.ask_all(requests(*names))
        return [a.text if isinstance(a, Reply) else str(a) for a in answers]

    def outcome(self) -> tuple[str, int]:
        ended = self.journal.all(BatchEnded)[-1]
        return ended.outcome, ended.answered


@contextmanager
def session(folder: Path, server: BatchLoopback, provider: str, **settings: object) -> Iterator[Bench]:
    bench = Bench(folder, server, provider, **settings)
    try:
        yield bench
    finally:
        bench.journal.close()


@contextmanager
def both(
    folder: Path, provider: str, looks: int | None = 1, **settings: object
) -> Iterator[tuple[BatchLoopback, Bench]]:
    """A server and one session of a run that asks it."""
    with BatchLoopback(kernel, looks) as server, session(folder, server, provider, **settings) as bench:
        yield server, bench


def stop_once_sent(server: BatchLoopback, bench: Bench) -> list[float]:
    """Ask the run to stop as soon as the server has a batch, however slow this machine is; the list says when."""
    at: list[float] = []

    def stop() -> None:
        while not server.made:
            time.sleep(0.01)
        at.append(time.monotonic())
        bench.stopped.set()

    threading.Thread(target=stop, daemon=True).start()
    return at


def usd_of(replies: Sequence[Reply], provider: str, batch: bool) -> float:
    price = price_for(provider, MODELS[provider], load_prices(), batch=batch)
    costs = [cost_usd(reply.usage, price) for reply in replies]
    return sum(cost for cost in costs if cost is not None)


@BOTH
def test_branches_go_out_as_one_batch_and_cost_the_batch_price(tmp_path: Path, provider: str) -> None:
    with BatchLoopback(kernel, looks=2) as server, session(tmp_path, server, provider) as bench:
        assert bench.ask("b0", "b1", "b2") == [f"a kernel for b{i}.\u2028\u0085 end" for i in range(3)]
        assert [branch_steps(made) for made in server.made] == [{f"iter1-branch-b{i}-0" for i in range(3)}]
        assert server.asked == []
        replies = [event.reply for event in bench.journal.all(ReplyReceived)]
        full = usd_of(replies, provider, batch=False)
        assert bench.state.cost.usd == pytest.approx(full / 2)
        assert full > 0
        assert bench.state.cost.calls == 3
        assert bench.outcome() == ("finished", 3)
        assert (tmp_path / "iterv1/prompts/iter1-branch-b1-0.reply.md").read_text().startswith("a kernel for b1.")


@BOTH
def test_the_intent_is_on_disk_before_the_batch_leaves(tmp_path: Path, provider: str) -> None:
    with BatchLoopback(kernel) as server, session(tmp_path, server, provider) as bench:
        bench.ask()
        kinds = [event.type for event in bench.journal.events]
        assert kinds[:4] == ["batch_sent", "request_sent", "request_sent", "batch_accepted"]
        sent = bench.journal.all(BatchSent)[0]
        assert {event.batch for event in bench.journal.all(RequestSent)} == {sent.key}
        assert all(name.startswith(f"{sent.tag}-") for name in server.made[0].items)


@BOTH
def test_a_restart_while_waiting_picks_the_same_batch_up_again(tmp_path: Path, provider: str) -> None:
    with BatchLoopback(kernel, looks=None) as server:
        with session(tmp_path, server, provider) as bench:
            stop_once_sent(server, bench)
            with pytest.raises(Interrupted):
                bench.ask()
        server.looks = 1
        with session(tmp_path, server, provider) as bench:
            assert bench.state.cost.usd == 0
            assert len(bench.ask()) == 2
            replies = [event.reply for event in bench.journal.all(ReplyReceived)]
            assert bench.state.cost.usd == pytest.approx(usd_of(replies, provider, batch=True))
        assert len(server.made) == 1
        assert server.asked == []


@BOTH
@pytest.mark.parametrize("ended", [True, False])
def test_a_batch_whose_id_was_lost_is_found_again_and_not_sent_twice(
    tmp_path: Path, provider: str, ended: bool
) -> None:
    """Killed between sending and the id: the journal ends with the intent."""
    with BatchLoopback(kernel, looks=None) as server:
        with session(tmp_path, server, provider) as bench:
            stop_once_sent(server, bench)
            with pytest.raises(Interrupted):
                bench.ask()
        log = tmp_path / "events.jsonl"
        kept = [line for line in log.read_text().splitlines() if "batch_accepted" not in line]
        log.write_text("\n".join(kept) + "\n")
        server.looks = server.made[0].looks if ended else server.made[0].looks + 2
        with session(tmp_path, server, provider) as bench:
            assert bench.ask()[0].startswith("a kernel for b0.")
            certain = bench.journal.all(BatchAccepted)[-1].certain
        assert len(server.made) == 1
        assert server.asked == []
        assert certain is (ended or provider == "openai")


@BOTH
def test_killed_at_any_event_it_sends_nothing_twice_and_loses_no_answer(tmp_path: Path, provider: str) -> None:
    with BatchLoopback(kernel) as server:
        with session(tmp_path, server, provider) as bench:
            bench.ask()
            whole, usd = bench.journal.events, bench.state.cost.usd
        lines = (tmp_path / "events.jsonl").read_bytes().splitlines(keepends=True)
        for count in range(1, len(lines) + 1):
            folder = tmp_path / str(count)
            folder.mkdir()
            (folder / "events.jsonl").write_bytes(b"".join(lines[:count]))
            with session(folder, server, provider) as bench:
                assert [text[:15] for text in bench.ask()] == ["a kernel for b0", "a kernel for b1"], lines[count - 1]
                assert bench.state.cost.usd == pytest.approx(usd), whole[count - 1].type
        assert len(server.made) == 1
        assert server.asked == []


@BOTH
def test_an_answer_that_is_lost_on_the_way_makes_no_second_batch(tmp_path: Path, provider: str) -> None:
    with BatchLoopback(kernel) as server, session(tmp_path, server, provider) as bench:
        server.loses = True
        assert bench.ask()[1].startswith("a kernel for b1.")
        assert len(server.made) == 1
        assert server.asked == []


@BOTH
def test_a_failed_item_is_asked_for_again_directly_and_the_others_are_kept(tmp_path: Path, provider: str) -> None:
    def answer(asked: Asked) -> str | Fault:
        return CLOSED if asked.number < 0 and "b1" in asked.user else kernel(asked)

    with BatchLoopback(answer) as server, session(tmp_path, server, provider) as bench:
        assert [text[:15] for text in bench.ask()] == ["a kernel for b0", "a kernel for b1"]
        assert [asked.user[-9:] for asked in server.asked] == ["ranch b1."]
        first, second = (event.reply for event in bench.journal.all(ReplyReceived))
        expected = usd_of([first], provider, batch=True) + usd_of([second], provider, batch=False)
        assert bench.state.cost.usd == pytest.approx(expected)
        assert bench.outcome() == ("finished", 1)
        assert "it broke" in bench.journal.all(RequestFailed)[0].message


@BOTH
def test_past_the_deadline_it_is_cancelled_and_the_rest_is_asked_directly(tmp_path: Path, provider: str) -> None:
    with both(tmp_path, provider, looks=None, deadline_minutes=0.005) as (server, bench):
        assert [text[:15] for text in bench.ask()] == ["a kernel for b0", "a kernel for b1"]
        assert server.made[0].cancelled
        assert bench.outcome() == ("cancelled", 0)
        assert len(server.asked) == 2
        replies = [event.reply for event in bench.journal.all(ReplyReceived)]
        assert bench.state.cost.usd == pytest.approx(usd_of(replies, provider, batch=False))


@BOTH
def test_a_batch_that_does_not_end_when_cancelled_counts_at_its_most(tmp_path: Path, provider: str) -> None:
    with BatchLoopback(kernel, looks=None) as server:
        server.deaf = True
        with session(tmp_path, server, provider, deadline_minutes=0.005) as bench:
            bench.ask()
            assert bench.outcome() == ("abandoned", 0)
            direct = usd_of([event.reply for event in bench.journal.all(ReplyReceived)], provider, batch=False)
            worst = sum(event.worst_usd or 0 for event in bench.journal.all(RequestSent) if event.batch)
            assert worst > 0
            assert bench.state.cost.usd == pytest.approx(direct + worst)


@BOTH
def test_an_api_that_takes_no_batches_is_asked_directly(tmp_path: Path, provider: str) -> None:
    with BatchLoopback(kernel) as server, session(tmp_path, server, provider) as bench:
        server.refuses = 404
        assert len(bench.ask()) == 2
        assert bench.outcome() == ("refused", 0)
        assert len(server.asked) == 2
        replies = [event.reply for event in bench.journal.all(ReplyReceived)]
        assert bench.state.cost.usd == pytest.approx(usd_of(replies, provider, batch=False))


@BOTH
def test_a_batch_that_is_gone_counts_at_its_most_and_is_asked_for_directly(tmp_path: Path, provider: str) -> None:
    with BatchLoopback(kernel, looks=None) as server, session(tmp_path, server, provider) as bench:
        threading.Timer(0.2, lambda: setattr(server, "forgets", True)).start()
        assert len(bench.ask()) == 2
        assert bench.outcome() == ("lost", 0)
        worst = sum(event.worst_usd or 0 for event in bench.journal.all(RequestSent) if event.batch)
        assert (bench.state.cost.usd or 0) > worst > 0


def test_a_bad_key_ends_the_run_and_is_not_tried_directly(tmp_path: Path) -> None:
    with BatchLoopback(kernel) as server, session(tmp_path, server, "anthropic") as bench:
        server.refuses = 401
        with pytest.raises(ModelUnusable, match="LLM_TEST_KEY"):
            bench.ask()
        assert server.asked == []


def test_both_branches_fit_the_budget_at_half_the_price(tmp_path: Path) -> None:
    worst = 2 * (1000 * 25 + 20 * 6.25) * 1e-6
    with BatchLoopback(kernel) as server, session(tmp_path, server, "anthropic", budget={"usd": 0.6 * worst}) as bench:
        assert len(bench.ask()) == 2
        assert server.asked == []


def test_a_batch_in_flight_counts_against_the_budget_also_after_a_restart(tmp_path: Path) -> None:
    worst = 2 * (1000 * 25 + 20 * 6.25) * 1e-6
    with BatchLoopback(kernel, looks=None) as server:
        for _ in range(2):
            with session(tmp_path, server, "anthropic", budget={"usd": 0.6 * worst}) as bench:
                prepared = bench.batching.prepare(requests())
                assert len(prepared) == 1
                bench.budget.reserve(lambda: bench.state.cost, 0.05 * worst, 10)
                with pytest.raises(BudgetExhausted):
                    bench.budget.reserve(lambda: bench.state.cost, 0.1 * worst, 10)
                threading.Timer(0.2, bench.stopped.set).start()
                with pytest.raises(Interrupted):
                    bench.batching.run(prepared[0], lambda request, reply: reply)
        assert len(server.made) == 1


def test_what_does_not_fit_the_budget_is_left_out_of_the_batch(tmp_path: Path) -> None:
    worst = (1000 * 25 + 20 * 6.25) * 1e-6
    with both(tmp_path, "anthropic", budget={"usd": 0.7 * worst}) as (server, bench):
        first, second = bench.asker.ask_all(requests())
        assert isinstance(first, Reply)
        assert isinstance(second, LLMError)
        assert second.kind == "no-budget"
        assert [len(made.items) for made in server.made] == [1]


def test_when_the_minutes_are_used_up_nothing_is_asked_directly(tmp_path: Path) -> None:
    with both(tmp_path, "anthropic", looks=None, budget={"minutes": 0.005}) as (server, bench):
        with pytest.raises(BudgetExhausted, match="minutes are used up"):
            bench.ask()
        assert server.made[0].cancelled
        assert server.asked == []


def test_a_stop_is_answered_within_a_second_and_leaves_the_batch_alone(tmp_path: Path) -> None:
    with BatchLoopback(kernel, looks=None) as server, session(tmp_path, server, "openai") as bench:
        stopped_at = stop_once_sent(server, bench)
        with pytest.raises(Interrupted):
            bench.ask()
        assert time.monotonic() - stopped_at[0] < 1.0
        assert not server.made[0].cancelled


def test_a_parameter_that_the_model_rejects_is_left_out_of_the_next_batch(tmp_path: Path) -> None:
    def answer(asked: Asked) -> str | Fault:
        if "temperature" in asked.body:
            error = {"type": "invalid_request_error", "message": "temperature is deprecated for this model"}
            return Fault("status", status=400, error=error)
        return kernel(asked)

    with BatchLoopback(answer) as server, session(tmp_path, server, "anthropic", temperature=0.5) as bench:
        bench.ask()
        again = bench.asker.ask_all([Request(Step(2, "branch", "b0"), "s", "p", "Branch b0.", 1000)])
        assert isinstance(again[0], Reply)
        assert ["temperature" in next(iter(made.items.values())) for made in server.made] == [True, False]
        assert bench.outcome() == ("finished", 1)


def test_answers_again_and_plans_are_asked_directly(tmp_path: Path) -> None:
    with BatchLoopback(kernel) as server, session(tmp_path, server, "anthropic") as bench:
        bench.asker.ask_all(requests("b0", attempt=1))
        bench.asker.ask_all([Request(Step(1, "plan"), "s", "p", "q", 100)])
        assert server.made == []
        assert len(server.asked) == 2


def test_several_models_make_a_batch_each_and_one_without_a_batch_api_is_asked_beside_them(tmp_path: Path) -> None:
    with BatchLoopback(kernel) as server:
        key = {"api_key_env": "LLM_TEST_KEY"}
        branch = [
            {"model": "claude-opus-5"},
            {"provider": "openai", "model": "gpt-5", "base_url": server.v1_url, **key},
            {"provider": "openai-compatible", "model": "local", "base_url": server.v1_url},
        ]
        with session(tmp_path, server, "anthropic", roles={"branch": branch}) as bench:
            assert len(bench.ask("b0", "b1", "b2", "b3")) == 4
        assert sorted(len(made.items) for made in server.made) == [1, 2]
        assert [asked.api for asked in server.asked] == ["chat"]


def test_what_came_in_a_batch_is_recorded_as_any_answer(tmp_path: Path) -> None:
    with both(tmp_path, "anthropic", record=str(tmp_path / "recorded")) as (_, bench):
        bench.ask("b0")
    recording = read_recording(tmp_path / "recorded", "iter1-branch-b0-0")
    assert recording is not None
    assert recording.reply.text == "a kernel for b0.\u2028\u0085 end"


@BOTH
def test_an_outage_while_waiting_ends_neither_the_batch_nor_the_run(tmp_path: Path, provider: str) -> None:
    """More failed looks in a row than one request is tried."""
    with both(tmp_path, provider, looks=2) as (server, bench):
        server.trips = 5
        assert len(bench.ask()) == 2
        assert bench.outcome() == ("finished", 2)
        assert server.asked == []


@BOTH
def test_a_web_page_instead_of_the_batch_api_sends_the_branches_directly(tmp_path: Path, provider: str) -> None:
    with both(tmp_path, provider) as (server, bench):
        server.portal = True
        assert len(bench.ask()) == 2
        assert bench.outcome() == ("lost", 0)
        assert len(server.asked) == 2


def test_a_batch_of_somebody_else_of_the_same_minute_and_size_is_neither_used_nor_cancelled(tmp_path: Path) -> None:
    with BatchLoopback(kernel, looks=None) as server:
        with session(tmp_path, server, "anthropic") as bench:
            stop_once_sent(server, bench)
            with pytest.raises(Interrupted):
                bench.ask()
        log = tmp_path / "events.jsonl"
        log.write_text("".join(f"{x}\n" for x in log.read_text().splitlines() if "batch_accepted" not in x))
        server.made[0].items = {name.replace("-", "x-", 1): body for name, body in server.made[0].items.items()}
        with session(tmp_path, server, "anthropic", deadline_minutes=0.001) as bench:
            assert [text[:15] for text in bench.ask()] == ["a kernel for b0", "a kernel for b1"]
            assert bench.outcome() == ("abandoned", 0)
        assert not server.made[0].cancelled
        assert len(server.asked) == 2
