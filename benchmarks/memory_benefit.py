"""What strategy memory is worth: evaluations until 95% of the best, on measured landscapes, with and without it.

`.venv/bin/python benchmarks/memory_benefit.py` replays `benchmarks/data/landscapes/` (see `landscape.py`) and prints
the tables of `docs/memory_benefit.md`; `--json FILE` writes every number. Nothing is built or timed, so that any
machine will do.

**The proposer** is the same random one in every case. It knows which strategies can be written on a task (a set of
methods, in a kernel) and nothing of what they bring: it never looks at the landscape, only at what the case lets it
see. Each iteration it draws K = 4 strategies, all different, none of them that of the best kernel, which it is shown:

1. what the run's own history shows as tried is not drawn again (where there is a history);
2. what the validator of plans refuses by memory's blocks is not drawn (where there is a recall). `--blocks wide` asks
   what a wider rule would cost: a method that failed by its own attribution may not be in any plan either;
3. what recall prefers comes first, in recall's order, unless its evidence is of this very run: at most half of the K
   slots, so that it always explores too;
4. the rest is drawn with weights: for each of its methods, the prior's expected speedup times the chance that it is
   implemented. A method without a prior weighs as memory assumes of the unknown. No prior at all: uniform.

**The cases.** `none`: no history, no recall. `history`: only what this run has tried, as every prompt lists it. `run`:
with it the recall of a memory that was empty when the run began. `others`: the memory holds a night of each other task
(leave one out). `all`: a night of the same task too. The nights before are `run` nights of their own. `misled`: the
memory holds a night of the same family, a decade of work away, on which every effect was the reverse (1/speedup).

The memory is the real one: records by `agent.stages.learning` from `attribute`, kept in a `Store`, read by `recall`.

**The measure.** Evaluations until one is within 5% of the landscape's best, and the share of evaluations spent on a
strategy that had failed before: in this night, or in the earlier night of the same task. A night ends after
`--iterations`, or with nothing left to draw; one that never came there counts as twice the night. Intervals are
bootstrap 95% over the seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from landscape_data import BASELINE, FOLDER, Code, Gain, Landscape, load_all
from replayed_night import Blocks, Night, Space, Strategy, copy_records

from memory.store import Store
from memory.types import Recall, StoredRecord

CLOSE = 0.95
BRANCHES = 4
RESAMPLES = 2000
UNKNOWN_FAILS = 0.25
"""The chance of failing of a method without a prior, as `memory.priors` assumes it."""

CASES = ("none", "history", "run", "others", "all", "misled")
Found = dict[str, dict[str, list["Result"]]]
"""Task -> case -> one result a seed."""


@dataclass(frozen=True, slots=True)
class Result:
    """One night of one case.

    Attributes:
        reached: evaluations until one was close to the best, None where none was.
        tried: strategies by their place in the space, in order.
        repeats: how many of them, on a strategy that had failed before in this night.
        old_repeats: how many of them, on a strategy that failed in the earlier night of the same task.
    """

    reached: int | None
    tried: tuple[int, ...]
    repeats: int
    old_repeats: int


@dataclass(frozen=True, slots=True)
class Played:
    """A night, what it left in memory, and what failed in it."""

    result: Result
    records: tuple[StoredRecord, ...]
    failed: frozenset[int]


@dataclass(frozen=True, slots=True)
class Rules:
    """How nights go: iterations at most, and what memory's blocks forbid."""

    iterations: int
    blocks: Blocks


def draw(
    space: Space,
    left: Sequence[int],
    recalled: Recall | None,
    admits: Callable[[int], bool],
    name: str,
    rng: random.Random,
) -> list[int]:
    """The strategies of one iteration, by their place in the space.

    Args:
        space: what can be written.
        left: what may be drawn.
        recalled: what memory said, None where there is none.
        admits: whether memory lets a strategy through.
        name: of the run.
        rng: of this night.
    """
    first = [i for i in preferred(space, recalled, name) if i in left and admits(i)]
    chosen = first[: BRANCHES // 2]
    weights = {i: weight(space.strategies[i], recalled) for i in left if i not in chosen}
    while weights and len(chosen) < BRANCHES:
        i = rng.choices(list(weights), list(weights.values()))[0]
        del weights[i]
        if admits(i):
            chosen.append(i)
    rng.shuffle(chosen)
    return chosen


def weight(strategy: Strategy, recalled: Recall | None) -> float:
    """How likely a strategy is drawn, by what memory expects of its methods; 1 without priors."""
    told = {prior.method: prior for prior in getattr(recalled, "priors", ())}
    if not told:
        return 1.0
    worth = 1.0
    for method in strategy.methods:
        prior = told.get(method)
        worth *= 1 - UNKNOWN_FAILS if prior is None else (prior.effect or 1.0) * (1 - prior.fails)
    return worth


def preferred(space: Space, recalled: Recall | None, name: str) -> list[int]:
    """What recall prefers and this space has, in recall's order; what the evidence line says is this run's left out."""
    told = [] if recalled is None else [a for a in recalled.preferred if f"{name}, iteration" not in a.evidence]
    return [space.places[advice.fingerprint] for advice in told if advice.fingerprint in space.places]


def play(
    space: Space,
    case: str,
    night: Night,
    before: frozenset[int],
    rules: Rules,
    rng: random.Random,
) -> tuple[Result, frozenset[int]]:
    """One night: its result, and what failed in it.

    Args:
        space: of its task.
        case: what the proposer may see.
        night: looks attempts up and learns from them.
        before: what failed in the earlier night of this task.
        rules: of all nights.
        rng: draws.
    """
    remembers = case not in ("none", "history")
    tried: list[int] = []
    failed: set[int] = set()
    best: int | None = None
    best_speedup, reached, repeats, old_repeats = 1.0, None, 0, 0
    for _ in range(rules.iterations):
        recalled = night.recall() if remembers else None
        known = {best} if case == "none" else set(tried)
        left = [i for i in range(len(space.strategies)) if i not in known]

        def admits(i: int, recalled: Recall | None = recalled) -> bool:
            return recalled is None or not night.refused(space.strategies[i], recalled, rules.blocks)

        for i in draw(space, left, recalled, admits, night.name, rng):
            strategy = space.strategies[i]
            speedup = space.speedup(strategy)
            tried.append(i)
            repeats += i in failed
            old_repeats += i in before
            if space.failed(strategy):
                failed.add(i)
            if reached is None and speedup >= CLOSE * space.best:
                reached = len(tried)
            if speedup > best_speedup:
                best, best_speedup = i, speedup
            if remembers:
                night.attempt(strategy)
    return Result(reached, tuple(tried), repeats, old_repeats), frozenset(failed)


def play_with_memory(
    space: Space,
    case: str,
    name: str,
    folder: Path,
    earlier: Sequence[Played],
    before: frozenset[int],
    rules: Rules,
    seed: int,
) -> Played:
    """One night with a memory of its own that holds what `earlier` nights left, the oldest first, one a day."""
    with Store(f"sqlite:///{folder / name}.db") as store:
        today = datetime.now(timezone.utc)
        for age, played in enumerate(reversed(earlier), 1):
            copy_records(played.records, store, today - timedelta(days=age))
        with Night(space, name, folder, store) as night:
            result, failed = play(space, case, night, before, rules, random.Random(f"{seed}/{name}"))
        records = store.query(run=name)
    return Played(result, records, failed)


def inverted(landscape: Landscape) -> Landscape:
    """A task of the same family, a decade of work away, on which all that helps here hurts, and the reverse."""

    def turned(code: Code) -> Code:
        if code.gain is None:
            return code
        g = code.gain
        return code.model_copy(
            update={
                "gain": Gain(
                    speedup=1 / g.speedup,
                    low=1 / g.high,
                    high=1 / g.low,
                    a_ms=g.b_ms,
                    b_ms=g.a_ms,
                    delta_ms=-g.delta_ms,
                    delta_low_ms=-g.delta_high_ms,
                    delta_high_ms=-g.delta_low_ms,
                )
            }
        )

    decade = int(landscape.shape_class.removeprefix("1e")) + 1
    codes = {name: turned(code) for name, code in landscape.codes.items() if name != BASELINE}
    return landscape.model_copy(
        update={"name": f"{landscape.name}_misled", "shape_class": f"1e{decade}", "codes": codes}
    )


def simulate(landscapes: Sequence[Landscape], seeds: int, rules: Rules, say: Callable[[str], None]) -> Found:
    """All nights: task -> case -> one result a seed."""
    spaces = {landscape.name: Space(landscape) for landscape in landscapes}
    wrong = {name: Space(inverted(space.landscape)) for name, space in spaces.items()}
    found: Found = {name: {case: [] for case in CASES} for name in spaces}
    for seed in range(seeds):
        say(f"seed {seed + 1} of {seeds}")
        with tempfile.TemporaryDirectory(prefix="roofclimb-benefit-", dir=_memory_disk()) as scratch:
            for name, results in _of_one_seed(spaces, wrong, Path(scratch), rules, seed).items():
                for case, result in results.items():
                    found[name][case].append(result)
    return found


def _of_one_seed(
    spaces: Mapping[str, Space], wrong: Mapping[str, Space], folder: Path, rules: Rules, seed: int
) -> dict[str, dict[str, Result]]:
    def night(
        space: Space, case: str, name: str, earlier: Sequence[Played] = (), before: frozenset[int] = frozenset()
    ) -> Played:
        return play_with_memory(space, case, name, folder, earlier, before, rules, seed)

    first = {name: night(space, "run", f"first_{name}") for name, space in spaces.items()}
    found = {}
    for name, space in spaces.items():
        others = [played for other, played in first.items() if other != name]
        earlier: dict[str, Sequence[Played]] = {"others": others, "all": [*others, first[name]]}
        earlier["misled"] = [night(wrong[name], "run", f"wrong_{name}")]
        found[name] = {
            case: night(space, case, f"{case}_{name}", earlier.get(case, ()), first[name].failed).result
            for case in CASES
        }
    return found


def _memory_disk() -> str | None:
    """Thousands of small synced files go to memory where there is such a disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def needed(results: Sequence[Result], night: int) -> list[float]:
    """Evaluations until close to the best; twice the night where a night never came there."""
    return [float(2 * night if r.reached is None else r.reached) for r in results]


def interval(values: Sequence[float], statistic: Callable[[Sequence[float]], float], rng: random.Random) -> list[float]:
    """A statistic with its bootstrap 95% interval."""
    draws = sorted(statistic(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return [statistic(values), draws[int(0.025 * RESAMPLES)], draws[int(0.975 * RESAMPLES) - 1]]


def summary(found: Found, night: int) -> dict[str, Any]:
    """What the tables show: per task and case mean evaluations and repeats, and over tasks the ratio to `none`."""
    rng = random.Random(0)
    tasks = {
        name: {
            case: {
                "evaluations": interval(needed(results, night), statistics.fmean, rng),
                "reached": sum(r.reached is not None for r in results),
                "nights": len(results),
                "repeated": _share(results, lambda r: r.repeats),
                "repeated_from_last_night": _share(results, lambda r: r.old_repeats),
            }
            for case, results in cases.items()
        }
        for name, cases in found.items()
    }
    ratios = {case: _ratio(found, case, night, rng) for case in CASES[1:]}
    return {"tasks": tasks, "ratio_to_none": ratios}


def _ratio(found: Found, case: str, night: int, rng: random.Random) -> list[float]:
    """A case's evaluations over those without memory: the geometric mean of tasks' mean ratios, seeds resampled."""
    seeds = len(next(iter(found.values()))[case])
    counts = [(needed(cases[case], night), needed(cases["none"], night)) for cases in found.values()]

    def ratio(chosen: Sequence[float]) -> float:
        places = [int(seed) for seed in chosen]
        logs = [math.log(sum(mine[i] for i in places) / sum(none[i] for i in places)) for mine, none in counts]
        return math.exp(statistics.fmean(logs))

    return interval(range(seeds), ratio, rng)


def _share(results: Sequence[Result], count: Callable[[Result], int]) -> float:
    return sum(count(r) for r in results) / max(1, sum(len(r.tried) for r in results))


def tables(told: Mapping[str, Any]) -> str:
    """The summary in Markdown."""
    head = ["| task | " + " | ".join(CASES) + " |", "|---|" + "---:|" * len(CASES)]
    lines = [f"Evaluations until {CLOSE:.0%} of the best, mean over seeds [95%]:", "", *head]
    for name, task in told["tasks"].items():
        lines.append(f"| {name} | " + " | ".join(_cell(task[case]) for case in CASES) + " |")
    ratios = told["ratio_to_none"]
    over_none = ["{:.2f} [{:.2f}, {:.2f}]".format(*ratios[case]) for case in CASES[1:]]
    lines.append("| over `none` | 1 | " + " | ".join(over_none) + " |")
    for key, title in (
        ("repeated", "Share of evaluations on a strategy that had failed before in the same night:"),
        ("repeated_from_last_night", "Share on a strategy that failed in an earlier night of the same task:"),
    ):
        lines += ["", title, "", *head]
        for name, task in told["tasks"].items():
            lines.append(f"| {name} | " + " | ".join(f"{task[case][key]:.1%}" for case in CASES) + " |")
    return "\n".join(lines)


def _cell(found: Mapping[str, Any]) -> str:
    text = "{:.1f} [{:.1f}, {:.1f}]".format(*found["evaluations"])
    missed = found["nights"] - found["reached"]
    return text + (f", {missed} of {found['nights']} never" if missed else "")


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description="What strategy memory is worth, on measured landscapes.")
    parser.add_argument("--landscapes", type=Path, default=FOLDER, help="folder of landscapes")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--iterations", type=int, default=6, help="of a night, with 4 strategies each")
    parser.add_argument("--blocks", choices=("validator", "wide"), default="validator", help="what memory forbids")
    parser.add_argument("--json", type=Path, help="write all numbers here")
    asked = parser.parse_args()
    landscapes = load_all(asked.landscapes)
    if len(landscapes) < 2:
        parser.error(f"{asked.landscapes}: holds {len(landscapes)} landscapes; at least two are needed")
    rules = Rules(asked.iterations, asked.blocks)
    found = simulate(landscapes, asked.seeds, rules, lambda text: print(text, file=sys.stderr, flush=True))
    told = summary(found, BRANCHES * asked.iterations)
    if asked.json:
        nights = {name: {case: [asdict(r) for r in rs] for case, rs in cases.items()} for name, cases in found.items()}
        told["nights"] = nights
        asked.json.write_text(json.dumps(told, indent=1) + "\n")
    print(tables(told))


if __name__ == "__main__":
    main()
