"""Records for the memory tests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

from memory.fingerprint import fingerprint
from memory.types import Outcome, Record, Scope, StoredRecord, Strategy

GEMM = Scope("gemm", "cpp", "x86_64", "1e8")
NOW = datetime(2026, 6, 1, 12, 0, tzinfo=timezone.utc)


def record(
    *methods: str,
    scope: Scope = GEMM,
    outcome: Outcome = "positive",
    effect: float | None = 1.5,
    run: str = "run_20260601_010203",
    iteration: int = 1,
    parameters: Mapping[str, Mapping[str, object]] | None = None,
    reason: str = "measured",
    lesson: str = "",
) -> Record:
    measured = None if outcome == "rejected" else effect
    return Record(
        scope=scope,
        strategy=Strategy(methods or ("tiling",), parameters or {}),
        outcome=outcome,
        effect=measured,
        effect_low=None if measured is None else measured - 0.02,
        effect_high=None if measured is None else measured + 0.02,
        reason=reason,
        run=run,
        iteration=iteration,
        versions={"g++": "12.2.0", "roofclimb": "0.1.0"},
        lesson=lesson,
    )


def stored(record_id: int, of: Record, *, days_ago: float = 1.0) -> StoredRecord:
    created = (NOW - timedelta(days=days_ago)).isoformat(timespec="microseconds")
    return StoredRecord(record_id, fingerprint(of.scope.backend, of.strategy), created, of)
