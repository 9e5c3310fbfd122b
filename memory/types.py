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


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record with the store's id, its fingerprint and when it was written (UTC, ISO 8601)."""

    id: int
    fingerprint: str
    created: str
    record: Record


@dataclass(frozen=True, slots=True)
class Advice:
    """One line of recall: the strategy, why, and the record behind it."""

    record_id: int
    fingerprint: str
    methods: tuple[str, ...]
    parameters: Mapping[str, Mapping[str, Any]]
    effect: float | None
    evidence: str


@dataclass(frozen=True, slots=True)
class Recall:
    """What a prompt is told. `blocked` strategies may not be proposed again; `preferred` are offered first."""

    blocked: tuple[Advice, ...] = ()
    preferred: tuple[Advice, ...] = ()
    lessons: tuple[str, ...] = ()
