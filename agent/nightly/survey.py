"""A task measured as it is, before anything is asked: what a night orders its tasks by.

All of it is the beginning of the task's own run, logged there, and measured only once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

from pydantic import BaseModel, ConfigDict

from agent.run import Run
from agent.stages.baseline import measure_baseline
from agent.stages.evidence import profile_baseline, profile_kernel
from memory.errors import StoreError
from memory.odds import success_odds
from profiling.headroom import headroom


class Survey(BaseModel):
    """See `agent.nightly.events.Surveyed`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gap: float | None
    odds: float
    expected: float | None


def survey(run: Run) -> Survey:
    """Measure and profile a run's baseline, and say what may be hoped for.

    Memory's advice for the first iteration is not asked for yet: tasks that come before this one may still add to it.
    """
    baseline = measure_baseline(run)
    profile_baseline(run, baseline)
    profile = profile_kernel(run, baseline, "targeted").profile
    gap = headroom(baseline.median_ms, run.work, run.ceilings, run.task.dtype, profile, run.search.near_peak).gap
    try:
        odds = success_odds(run.store.query(), run.scope, now=datetime.now(timezone.utc))
    except StoreError as error:
        run.note("survey", f"the night's order goes without memory: {error}")
        odds = success_odds((), run.scope, now=datetime.now(timezone.utc))
    return Survey(gap=gap, odds=odds, expected=expected_gain(gap, odds))


def expected_gain(gap: float | None, odds: float) -> float | None:
    """ln(time / floor) · odds: how much faster the kernel could be, times how often such hopes came true."""
    return None if gap is None else -math.log(max(1 - gap, 1e-9)) * odds


def by_expected_gain(tasks: Iterable[int], expected: Mapping[int, float | None]) -> list[int]:
    """The tasks, the most hopeful first; those of which nothing is known last, in the order given."""

    def rank(task: int) -> tuple[bool, float]:
        hope = expected.get(task)
        return (hope is None, -(hope or 0.0))

    return sorted(tasks, key=rank)
