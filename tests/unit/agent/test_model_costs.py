"""Who is paid what must add up, or a user keeps the wrong model."""

from __future__ import annotations

import pytest

from agent import events as ev
from agent.events import Event
from agent.llm.types import Reply, Step, Usage
from agent.state_fold import fold
from backends.types import Rejected
from tests.unit.agent.event_log import stamped

CLAUDE, LOCAL = ("anthropic", "claude-opus-5"), ("openai-compatible", "qwen")


def asked(step: Step, who: tuple[str, str], usd: float | None) -> list[Event]:
    """A request and its reply, the model named by the server with its date."""
    provider, model = who
    sent = ev.RequestSent(
        key=step.name,
        iteration=step.iteration,
        purpose=step.purpose,
        prompt_sha256="0",
        worst_usd=1.0,
        worst_tokens=10,
        provider=provider,
        model=model,
    )
    reply = Reply("text", f"{model}-20261101", Usage(1, 1), usd, "end")
    return [sent, ev.ReplyReceived(key=step.name, iteration=step.iteration, purpose=step.purpose, reply=reply)]


def written(branch: str, model: str, key: str = "", rejected: Rejected | None = None) -> Event:
    source = None if rejected else "code"
    key = key or f"iter1/{branch}"
    return ev.BranchWritten(key=key, iteration=1, branch=branch, model=model, source=source, rejected=rejected)


def test_each_model_and_branch_has_its_own_cost_and_they_add_up() -> None:
    state = fold(
        stamped(
            [
                *asked(Step(1, "plan"), CLAUDE, 0.5),
                *asked(Step(1, "branch", "b0"), CLAUDE, 0.25),
                *asked(Step(1, "branch", "b1"), LOCAL, 0.01),
                written("b0", "claude-opus-5-20261101"),
                written("b1", "qwen-20261101"),
                *asked(Step(1, "repair", "b1"), CLAUDE, 0.125),
                written("b1", "claude-opus-5-20261101", key="iter1/b1/repair1"),
            ]
        )
    )
    assert [(m.provider, m.model, m.calls, m.branches) for m in state.models] == [(*CLAUDE, 3, 2), (*LOCAL, 1, 0)]
    assert sum(m.usd or 0 for m in state.models) == pytest.approx(state.cost.usd)
    first, second = state.branches
    assert (first.provider, first.usd) == ("anthropic", 0.25)
    assert second.provider == "anthropic"
    assert second.usd == pytest.approx(0.135)


def test_an_unknown_price_stays_unknown_for_its_model_alone() -> None:
    events = [*asked(Step(1, "branch", "b0"), CLAUDE, 0.25), *asked(Step(1, "branch", "b1"), LOCAL, None)]
    state = fold(stamped([*events, written("b1", "qwen")]))
    assert [m.usd for m in state.models] == [0.25, None]
    assert state.branches[0].usd is None
    assert state.cost.usd is None


def test_a_branch_that_got_no_answer_is_its_models_all_the_same() -> None:
    sent = asked(Step(1, "branch", "b0"), LOCAL, 0.1)[0]
    failed = ev.RequestFailed(
        key="x", step="iter1-branch-b0-0", iteration=1, purpose="branch", kind="refusal", message="no", usd=0.1
    )
    state = fold(stamped([sent, failed, written("b0", "", rejected=Rejected("answer", "no"))]))
    assert (state.branches[0].provider, state.branches[0].model, state.branches[0].usd) == (*LOCAL, 0.1)
    assert [(m.model, m.branches, m.right) for m in state.models] == [("qwen", 1, 0)]
