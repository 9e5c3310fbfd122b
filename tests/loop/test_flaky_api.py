"""The quickstart through each SDK while a fifth of the replies fail: it ends finished, within its budget."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
import yaml

from agent.llm.prices import cost_usd, load_prices, price_for
from agent.llm.recording import read_recording
from agent.llm.types import Usage
from tests.loop.scenario import events_of, roofclimb, state_of
from tests.loopback import OVERLOADED, Asked, Fault, Loopback, Tokens, counted

ANSWERS = Path("configs/answers/quickstart").resolve()
MODELS = {"anthropic": "claude-sonnet-4-5", "openai": "gpt-5.1"}
SOON = {"retry-after-ms": "20"}
FAULTS = (
    Fault("status", 429, {"type": "rate_limit_error", "message": "slow down"}, headers=SOON),
    Fault("status", 529, {"type": "overloaded_error", "message": "Overloaded"}, headers=SOON),
    Fault("drop", text="```cpp\nhalf of it", after=3),
    Fault("truncated", text="```cpp\nhalf of it"),
    Fault("status", 500, headers=SOON),
    OVERLOADED,
    Fault("empty"),
)


class Flaky:
    """A model that answers as in the quickstart's recordings, but every fifth time fails in one more way.

    It keeps its own account of what it charges. Each axis has a slot, whatever leads today.
    """

    def __init__(self, provider: str) -> None:
        price = price_for(provider, MODELS[provider], load_prices())
        assert price is not None
        self._price = price
        self.usd = 0.0
        self.failed: dict[int, Fault] = {}
        self._iteration = 1
        self._writing = False
        failures = list(FAULTS)
        random.Random(20261130).shuffle(failures)
        self._schedule = {5 * i + random.Random(i).randrange(5): fault for i, fault in enumerate(failures)}

    def answer(self, asked: Asked) -> str | Fault:
        fault = self._schedule.get(asked.number)
        if fault is not None:
            self.failed[asked.number] = fault
            return fault
        return self._plan(asked) if "# Your answer: the plan" in asked.user else self._kernel(asked)

    def tokens(self, asked: Asked, text: str) -> Tokens:
        found = counted(asked, text)
        assert found is not None
        broken = asked.number in self.failed and self.failed[asked.number].kind in ("drop", "overloaded")
        usage = Usage(
            found.prompt - found.cached - found.written, 0 if broken else found.output, found.cached, found.written
        )
        self.usd += cost_usd(usage, self._price) or 0.0
        return found

    def _plan(self, asked: Asked) -> str:
        """The recorded plan, quoting today's value of a metric: a plan that quotes another day's is rejected."""
        self._iteration += self._writing
        self._writing = False
        plan = json.loads(self._recorded(f"iter{self._iteration}-plan-0"))
        rows = [row.split("|") for row in asked.user.splitlines() if re.match(r"\| (compute|memory|latency) ", row)]
        for method in plan["methods"]:
            quoted = next((row for row in rows if row[1].strip() == method["axis"]), rows[0])
            method["triggers"] = [{"metric": quoted[2].strip(), "value": float(quoted[3])}]
        plan["skipped"] = []
        return json.dumps(plan)

    def _kernel(self, asked: Asked) -> str:
        branch = re.search(r"# Your answer: branch (b\d)", asked.user)
        assert branch is not None
        self._writing = True
        return self._recorded(f"iter{self._iteration}-branch-{branch[1]}-0")

    def _recorded(self, step: str) -> str:
        recording = read_recording(ANSWERS, step)
        assert recording is not None
        return recording.reply.text


@pytest.mark.parametrize("provider", MODELS)
def test_the_quickstart_ends_finished_and_within_its_budget(tmp_path: Path, provider: str) -> None:
    model = Flaky(provider)
    budget_usd = 1.0
    with Loopback(model.answer, tokens=model.tokens) as server:
        url = server.base_url if provider == "anthropic" else server.v1_url
        llm = {
            "provider": provider,
            "model": MODELS[provider],
            "base_url": url,
            "api_key_env": "LOOPBACK_KEY",
            "max_output_tokens": 8000,
        }
        changes = {
            "llm": llm,
            "budget": {"usd": budget_usd},
            "task.dims": {"M": 96, "N": 96, "K": 96},
            "task.check_dims": [{"M": 33, "N": 17, "K": 9}],
            "search": {
                "iterations": 2,
                "branches": 4,
                "methods": 3,
                "axis_cap": 1,
                "near_peak": 0.001,
                "ablate": False,
            },
            "measure": {"warmup_ms": 2, "min_time_s": 0.02, "max_time_s": 3},
        }
        sets = [part for key, value in changes.items() for part in ("--set", f"{key}={_flow(value)}")]
        env = {"LOOPBACK_KEY": "sk-only-for-the-loopback"}
        done = roofclimb("run", "--config", "quickstart", *sets, cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stderr
        asked = server.count
        limits = {a.body.get("max_tokens") or a.body.get("max_output_tokens") for a in server.asked}
    assert limits == {8000, 16000}  # the answer that was cut off got more room
    state = state_of(tmp_path)
    assert state.status == "finished"
    assert len(state.branches) == 8
    assert sum(branch.status == "pass" for branch in state.branches) >= 6
    assert 0.15 <= len(model.failed) / asked <= 0.35
    retried = [f for f in model.failed.values() if f.kind in ("status", "drop", "overloaded")]
    assert state.cost.retried == len(events_of(tmp_path, "request_retried")) == len(retried)
    assert state.cost.calls + state.cost.retried == asked
    summary = (tmp_path / "runs/latest/summary.md").read_text(encoding="utf-8")
    assert f"{len(retried)} attempts failed and were made again" in summary
    assert "of the input came from the cache" in summary
    # Never less than the model charges, and never more than the budget.
    assert state.cost.usd is not None
    assert model.usd <= state.cost.usd * 1.0001
    assert state.cost.usd <= budget_usd


def _flow(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).strip().removesuffix("\n...")
