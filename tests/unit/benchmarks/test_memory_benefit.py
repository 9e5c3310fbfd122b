"""The benefit of memory, on what was recorded: a night that remembers never pays twice for one failure."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import memory_benefit
import pytest
from landscape_data import FOLDER, load
from memory_benefit import CASES, Rules, inverted, play, play_with_memory
from replayed_night import Night, Space

from memory.store import Store
from profiling.findings import Comparison

ROOT = Path(__file__).parents[3]
SOME = ("rmsnorm_cpp", "rowsum_cpp")


@pytest.fixture(scope="module")
def space() -> Space:
    return Space(load(FOLDER / "rowsum_cpp.json"))


@pytest.mark.parametrize("blocks", ["validator", "wide"])
def test_no_failure_is_repeated_with_memory_and_the_tables_say_so(tmp_path: Path, blocks: str) -> None:
    for name in SOME:
        (tmp_path / f"{name}.json").write_bytes((FOLDER / f"{name}.json").read_bytes())
    script, found = ROOT / "benchmarks" / "memory_benefit.py", tmp_path / "found" / "numbers.json"
    found.parent.mkdir()
    short = ["--seeds", "1", "--iterations", "3", "--blocks", blocks, "--json", str(found)]
    command = [sys.executable, str(script), "--landscapes", str(tmp_path), *short]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})
    told = json.loads(found.read_text())
    assert tuple(told["tasks"]) == SOME
    for name, cases in told["tasks"].items():
        assert tuple(cases) == CASES
        assert all(cases[case]["repeated"] == 0 for case in ("run", "others", "all", "misled"))
        assert cases["all"]["repeated_from_last_night"] == 0
        for case, results in cases.items():
            mean, low, high = results["evaluations"]
            assert low <= mean <= high
            assert len(told["nights"][name][case]) == 1
        assert f"| {name} | {cases['none']['evaluations'][0]:.1f} [" in done.stdout
    assert any(cases["none"]["repeated"] > 0 for cases in told["tasks"].values()), "nothing is forgotten without memory"
    assert set(told["ratio_to_none"]) == set(CASES) - {"none"}


@pytest.mark.parametrize("case", ["history", "run"])
def test_the_proposer_sees_of_the_landscape_only_what_memory_tells(space: Space, tmp_path: Path, case: str) -> None:
    """It draws alike where every effect is the reverse, until memory tells it otherwise."""
    drawn = []
    for number, place in enumerate((space, Space(inverted(space.landscape)))):
        with Store(f"sqlite:///{tmp_path}/{number}.db") as store, Night(place, f"n{number}", tmp_path, store) as night:
            result, _ = play(place, case, night, frozenset(), Rules(3, "validator"), random.Random(1))
        drawn.append(result.tried)
    alike = len(drawn[0]) if case == "history" else memory_benefit.BRANCHES
    assert drawn[0][:alike] == drawn[1][:alike]
    assert case == "history" or drawn[0] != drawn[1]


def test_an_earlier_night_of_the_same_task_finds_the_best_at_once(space: Space, tmp_path: Path) -> None:
    rules = Rules(20, "validator")
    first = play_with_memory(space, "run", "first", tmp_path, (), frozenset(), rules, 3)
    assert first.result.reached is not None
    second = play_with_memory(space, "all", "second", tmp_path, [first], first.failed, rules, 3)
    assert second.result.reached is not None
    assert second.result.reached <= memory_benefit.BRANCHES


def test_what_a_night_learns_is_what_a_run_would_remember(space: Space, tmp_path: Path) -> None:
    strategy = next(s for s in space.strategies if len(s.methods) == 2 and not space.failed(s))
    with Store(f"sqlite:///{tmp_path}/memory.db") as store, Night(space, "night", tmp_path, store) as night:
        night.attempt(strategy)
        whole = [r.record for r in store.query() if set(r.record.strategy.methods) == set(strategy.methods)]
        alone = {r.record.strategy.methods for r in store.query()} - {strategy.methods}
    outcome = space.landscape.outcome(strategy.point)
    assert isinstance(outcome, Comparison)
    assert [(r.outcome, r.effect) for r in whole] == [("positive", outcome.speedup)]
    assert alone <= {(method,) for method in strategy.methods}
    assert alone
