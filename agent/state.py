"""What `state.json` holds: the state of a run, which `agent.state_fold` makes from its events.

Nothing else writes the file, and nothing reads it back to decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from agent.artefacts import write_text
from agent.events import Attribution
from agent.model_costs import ModelState

RunStatus = Literal["running", "finished", "interrupted", "waiting", "failed"]
BranchStatus = Literal["written", "rejected", "pass", "fail", "suspect", "error", "unverified"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BranchState(_Part):
    """One branch of one iteration, repairs folded in. `gap`: its time over the champion's, less 1.

    `usd`: what asking for it cost, repairs included; None: not known.
    """

    iteration: int
    name: str
    model: str
    provider: str = ""
    usd: float | None = None
    status: BranchStatus
    median_ms: float | None = None
    reason: str | None = None
    repairs: int = 0
    champion: bool = False
    gap: float | None = None


class MethodState(Attribution):
    """One line of the attribution table, with its iteration."""

    iteration: int


class RooflineState(_Part):
    """Headroom of the best kernel as iteration `iteration` began: the bottleneck-drift table."""

    iteration: int
    time_ms: float
    floor_ms: float | None
    gap: float | None
    compute: float
    memory: float
    latency: float
    near_peak: bool
    bound: str


class IterationState(_Part):
    """One line of the timeline. `speedup` of the champion over the best before it, with its 95% interval."""

    iteration: int
    status: str
    reason: str
    methods: tuple[str, ...]
    champion: str | None
    champion_ms: float | None
    speedup: float | None
    low: float | None
    high: float | None


class FrontierEntry(_Part):
    """A correct branch that did not become champion."""

    iteration: int
    name: str
    median_ms: float
    gap: float


class Cost(_Part):
    """What the model cost. `usd` None: an unknown price. In-flight requests of a killed session count at their most.

    `calls` were answered, or charged all the same; `retried` are attempts that failed and were made again.
    """

    usd: float | None = 0.0
    tokens: Mapping[str, int] = {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0}
    calls: int = 0
    retried: int = 0
    by_purpose: Mapping[str, float] = {}


class State(_Part):
    """Everything a person or script asks of a run. Times in ms; None: not known (yet)."""

    run_id: str = ""
    version: str = ""
    task: str = ""
    backend: str = ""
    status: RunStatus = "running"
    stop_reason: str | None = None
    iteration: int = 0
    baseline_ms: float | None = None
    reference_ms: float | None = None
    best_ms: float | None = None
    best_file: str | None = None
    best_from: str = "baseline"
    speedup: float | None = None
    speedup_interval: tuple[float, float] | None = None
    speedup_over_reference: float | None = None
    noise: float = 0.0
    aa_spread: float | None = None
    degraded: str | None = None
    branches: tuple[BranchState, ...] = ()
    iterations: tuple[IterationState, ...] = ()
    effective_methods: tuple[MethodState, ...] = ()
    ineffective_methods: tuple[MethodState, ...] = ()
    implementation_failed_methods: tuple[MethodState, ...] = ()
    interaction_methods: tuple[MethodState, ...] = ()
    unverified_methods: tuple[MethodState, ...] = ()
    roofline_history: tuple[RooflineState, ...] = ()
    frontier: tuple[FrontierEntry, ...] = ()
    lessons: tuple[str, ...] = ()
    cost: Cost = Cost()
    models: tuple[ModelState, ...] = ()
    retries: int = 0
    elapsed_s: float = 0.0
    notes: tuple[str, ...] = ()


def write_state(state: State, folder: Path) -> None:
    """Replace `state.json` in one step, so that a reader never sees half of it."""
    write_text(folder / "state.json", state.model_dump_json(indent=2) + "\n")
