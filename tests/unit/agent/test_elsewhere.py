"""Times of two devices side by side fool everyone: what came from elsewhere is scaled, and said."""

from __future__ import annotations

from agent import events as ev
from agent.elsewhere import Elsewhere, comparable_ms
from agent.progress import describe
from agent.state_fold import fold
from profiling.findings import Evaluation, Timing
from tests.unit.agent.event_log import opening, stamped

# The best kernel takes 4 ms there and 6 ms here.
THERE = Elsewhere(device="GPU 1 (GPU-bbbb)", base_ms=4.0, scale=1.5)


def evaluated(branch: str, median_ms: float, elsewhere: Elsewhere | None) -> ev.Evaluated:
    timing = Timing(median_ms, 0.01, (median_ms,) * 10, 0.0, median_ms, "cold")
    outcome = Evaluation("pass", None, (), timing)
    return ev.Evaluated(
        key=f"iter1/{branch}", iteration=1, branch=branch, build_s=1.0, outcome=outcome, elsewhere=elsewhere
    )


def written(branch: str) -> ev.BranchWritten:
    return ev.BranchWritten(key=f"iter1/{branch}", iteration=1, branch=branch, model="m", source="kernel")


def test_a_time_from_elsewhere_ranks_by_its_share_of_the_best_kernels_time_there() -> None:
    # 2.2 ms on the faster device is slower than 3 ms on ours.
    here, there = evaluated("b0", 3.0, None), evaluated("b1", 2.2, THERE)
    state = fold(stamped([*opening(), written("b0"), written("b1"), here, there]))
    times = {b.name: b.median_ms for b in state.branches if b.iteration == 1}
    assert times["b0"] == 3.0
    assert times["b1"] is not None
    assert abs(times["b1"] - 3.3) < 1e-9
    assert comparable_ms(Evaluation("fail", "wrong", (), None), THERE) is None


def test_what_a_person_reads_says_where_it_was_measured() -> None:
    (event,) = stamped([evaluated("b1", 2.0, THERE)])
    assert describe(event) == "iter 1 b1 pass 3.000 ms by what it took on GPU 1 (GPU-bbbb)"


def test_a_retry_is_counted_and_told() -> None:
    events = stamped(
        [*opening(), ev.TaskRetried(key="0", task="build of b0/kernel.cu", place="the Ray cluster", reason="node died")]
    )
    assert fold(events).retries == 1
    assert describe(events[-1]) == "build of b0/kernel.cu lost at the Ray cluster and tried again: node died"
