"""Strategy memory's records: what was tried, where, and what the evidence said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["positive", "negative", "rejected"]


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a strategy was tried: operator family (`gemm`), backend, architecture (`sm_90`, `x86_64`), shape class."""

    family: str
    backend: str
    arch: str
    shape_class: str


@dataclass(frozen=True, slots=True)
class Strategy:
    """A set of methods with their parameters. `parameters`: method id -> parameter name -> value."""

    methods: tuple[str, ...]
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """One strategy's outcome against the kernel it was applied to.

    Attributes:
        scope, strategy: what and where.
        outcome: positive and negative come from a measured comparison, rejected from a failed build or check.
        effect: speedup over the kernel it was applied to, with `effect_low`/`effect_high` (95%); None when rejected.
        reason: one line of evidence.
        run: run id; iteration: from 1.
        versions: toolchain, device, roofclimb.
        lesson: at most 60 words for the next prompt, "" for none.
        noise: the smallest relative gain that this run could claim; None where it was not kept.
        base_ms, ms: time of the kernel it was applied to, and with it.
        together: none of its methods helps alone: the effect is of all of them, and theirs only together.
        in_company: it is part of a larger plan, and the outcome its share of that plan's; else the plan was exactly it.
    """

    scope: Scope
    strategy: Strategy
    outcome: Outcome
    effect: float | None
    effect_low: float | None
    effect_high: float | None
    reason: str
    run: str
    iteration: int
    versions: Mapping[str, str] = field(default_factory=dict)
    lesson: str = ""
    noise: float | None = None
    base_ms: float | None = None
    ms: float | None = None
    together: bool = False
    in_company: bool = False


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record with the store's id, its fingerprint and when it was written (UTC, ISO 8601)."""

    id: int
    fingerprint: str
    created: str
    record: Record


@dataclass(frozen=True, slots=True)
class Advice:
    """One line of recall: the strategy, why, and the record behind it.

    Attributes:
        record_id: the newest record of the scope that decides.
        fingerprint, methods, parameters: the strategy.
        effect: speedup, pooled over the runs of that scope; None where none measured it.
        evidence: one line.
        runs: how many runs of that scope tried it; agree: how many of them came to this verdict.
        together: its methods help only together.
    """

    record_id: int
    fingerprint: str
    methods: tuple[str, ...]
    parameters: Mapping[str, Mapping[str, Any]]
    effect: float | None
    evidence: str
    runs: int = 1
    agree: int = 1
    together: bool = False


@dataclass(frozen=True, slots=True)
class Prior:
    """What is to be expected of one method here, whatever its parameters, before it is tried.

    Attributes:
        method: its id.
        effect: expected speedup of what is implemented, drawn towards 1 where evidence is thin or far; None where no
            record measured it.
        low, high: 95% interval of the pooled effect, before it is drawn towards 1; None for fewer than two intervals.
        fails: chance that it is not implemented (no branch passes, or the machine code does not show it), 0 to 1.
        tried: attempts that this rests on; failed: those that were not implemented.
        weight: how many attempts of today, in this very scope, the evidence is worth.
    """

    method: str
    effect: float | None
    low: float | None
    high: float | None
    fails: float
    tried: int
    failed: int
    weight: float


@dataclass(frozen=True, slots=True)
class Recall:
    """What a run goes by. `blocked` strategies may not be proposed again; `preferred` are offered first."""

    blocked: tuple[Advice, ...] = ()
    preferred: tuple[Advice, ...] = ()
    lessons: tuple[str, ...] = ()
    priors: tuple[Prior, ...] = ()
