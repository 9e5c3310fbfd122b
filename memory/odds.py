"""How often what was tried on a task's like has gained: the part of a forecast that memory knows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from memory.recall import HALF_LIFE_DAYS
from memory.scope import distance
from memory.types import Scope, StoredRecord


def success_odds(records: Iterable[StoredRecord], scope: Scope, *, now: datetime) -> float:
    """The share of tries that gained, 0-1, each weighed by 2^-distance and 2^(-age / half-life).

    One gain and one failure are added to what is known, so that a scope nobody has tried stands at one half, and a
    single try does not settle it.

    Args:
        records: of any scope; unrelated ones say nothing.
        scope: where it will be tried.
        now: with a time zone.
    """
    gained, tried = 1.0, 2.0
    for stored in records:
        far = distance(stored.record.scope, scope)
        if far is None:
            continue
        age_days = max(0.0, (now - datetime.fromisoformat(stored.created)).total_seconds() / 86400)
        weight = 2 ** -(far + age_days / HALF_LIFE_DAYS)
        tried += weight
        gained += weight * (stored.record.outcome == "positive")
    return gained / tried
