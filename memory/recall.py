"""What earlier evidence says to a run that starts an iteration here and now."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from memory.scope import SISTER_FAMILY, describe, distance
from memory.types import Advice, Recall, Record, Scope, StoredRecord

HALF_LIFE_DAYS = 90.0
"""A record's weight is 2^(-age / 90 days): compilers, drivers and kernels move on."""

STALE_BELOW = 0.5
"""A failure blocks while its weight is at least this, so for one half-life."""

UNBLOCKS_WITHIN = SISTER_FAMILY
"""A later success at less than this distance lifts a block: the same family, some decades or generations away."""


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The latest record of one strategy in one scope, seen from the scope of the run."""

    stored: StoredRecord
    created: datetime
    distance: float
    weight: float

    @property
    def failed(self) -> bool:
        return self.stored.record.outcome != "positive"

    @property
    def age_key(self) -> tuple[datetime, int]:
        return (self.created, self.stored.id)

    @property
    def expected(self) -> float:
        """ln(speedup) · 2^-distance · weight: what the measured effect is worth here and now."""
        effect = self.stored.record.effect
        return 0.0 if effect is None else math.log(effect) * 2**-self.distance * self.weight


def recall(records: Iterable[StoredRecord], scope: Scope, *, now: datetime, limit: int = 8) -> Recall:
    """Merge the records of this run and of all runs into what a prompt in `scope` is told.

    Only the latest record of a strategy in a scope speaks for that scope. For each strategy (fingerprint) the nearest
    related scope decides, except that a later success within `UNBLOCKS_WITHIN` outweighs a failure there:

    - `blocked`: it failed (negative or rejected) in exactly this scope, less than `HALF_LIFE_DAYS` ago. Newest first
      and never cut, because the validator refuses by it. A fingerprint is the whole strategy, so a method alone is
      blocked only by a record of that method alone.
    - `preferred`: it succeeded there. The best `limit` by ln(speedup) · 2^-distance · 2^(-age / half-life), which is
      the order of the measured effects where scope and age are equal.
    - `lessons`: the lessons of related scopes without repetition, at most `limit`, by the same weight without the
      effect, newer first among equals.

    Args:
        records: of both levels, in any order; a record given twice counts once.
        scope: where the next strategy will run.
        now: with a time zone.
        limit: of `preferred` and of `lessons`.
    """
    related = [found for stored in records if (found := _seen_from(stored, scope, now)) is not None]
    standing = [_standing(found) for found in _latest(related).values()]
    blocked = [found for found in standing if found.failed and not found.distance and found.weight >= STALE_BELOW]
    preferred = [found for found in standing if not found.failed]
    blocked.sort(key=lambda found: found.age_key, reverse=True)
    preferred.sort(key=lambda found: (-found.expected, found.distance, found.stored.id))
    return Recall(
        blocked=tuple(_advice(found.stored) for found in blocked),
        preferred=tuple(_advice(found.stored) for found in preferred[:limit]),
        lessons=_lessons(related, limit),
    )


def blocked_by(recalled: Recall, fingerprint: str) -> Advice | None:
    """The evidence that blocks exactly this strategy, None where it may be proposed."""
    return next((advice for advice in recalled.blocked if advice.fingerprint == fingerprint), None)


def evidence(record: Record) -> str:
    """One line: `0.97x [0.95, 0.99] on gemm/cpp/x86_64/1e8, run_20260101_010203, iteration 2`."""
    if record.effect is None:
        result = f"{record.outcome}: {record.reason}" if record.reason else record.outcome
    else:
        result = f"{record.effect:.2f}x"
        if record.effect_low is not None and record.effect_high is not None:
            result += f" [{record.effect_low:.2f}, {record.effect_high:.2f}]"
    return f"{result} on {describe(record.scope)}, {record.run}, iteration {record.iteration}"


def _seen_from(stored: StoredRecord, scope: Scope, now: datetime) -> _Evidence | None:
    far = distance(stored.record.scope, scope)
    if far is None:
        return None
    created = datetime.fromisoformat(stored.created)
    age_days = (now - created).total_seconds() / 86400
    return _Evidence(stored, created, far, 2 ** -(max(age_days, 0.0) / HALF_LIFE_DAYS))


def _latest(related: Iterable[_Evidence]) -> dict[str, dict[Scope, _Evidence]]:
    latest: dict[str, dict[Scope, _Evidence]] = {}
    for found in related:
        scopes = latest.setdefault(found.stored.fingerprint, {})
        known = scopes.get(found.stored.record.scope)
        if known is None or found.age_key > known.age_key:
            scopes[found.stored.record.scope] = found
    return latest


def _standing(scopes: dict[Scope, _Evidence]) -> _Evidence:
    nearest_first = sorted(scopes.values(), key=lambda found: found.distance)
    nearest = nearest_first[0]
    if not nearest.failed:
        return nearest
    later = (found for found in nearest_first if not found.failed and found.age_key > nearest.age_key)
    return next((found for found in later if found.distance < UNBLOCKS_WITHIN), nearest)


def _advice(stored: StoredRecord) -> Advice:
    record = stored.record
    return Advice(
        record_id=stored.id,
        fingerprint=stored.fingerprint,
        methods=record.strategy.methods,
        parameters=record.strategy.parameters,
        effect=record.effect,
        evidence=evidence(record),
    )


def _lessons(related: list[_Evidence], limit: int) -> tuple[str, ...]:
    newest_first = sorted(related, key=lambda found: found.age_key, reverse=True)
    ranked = sorted(newest_first, key=lambda found: -(2**-found.distance) * found.weight)
    unique: dict[str, str] = {}
    for found in ranked:
        lesson = " ".join(found.stored.record.lesson.split())
        if lesson:
            unique.setdefault(lesson.rstrip(".").casefold(), lesson)
    return tuple(unique.values())[:limit]
