"""What all records of one strategy add up to, seen from one scope: the scope that decides, its verdict, and why."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from memory.decay import weight
from memory.pooling import Pooled, pool
from memory.scope import SISTER_FAMILY, describe, distance
from memory.types import Record, Scope, StoredRecord

STALE_BELOW = 0.5
"""A failure blocks while its weight is at least this, so for one half-life."""

UNBLOCKS_WITHIN = SISTER_FAMILY
"""A later success at less than this distance lifts a block: the same family, some decades or generations away."""

LEAST_WORTH = 1 / 32
"""Evidence whose 2^-distance · weight is less is not told."""

_MANY = 3
"""From this many runs on, a clear majority with a clear pooled effect outweighs a newest failure."""

Verdict = Literal["worked", "failed", "unclear"]
Status = Literal["blocked", "preferred", "not told"]


@dataclass(frozen=True, slots=True)
class Seen:
    """A record with its distance from the scope of the run and the weight it has today."""

    stored: StoredRecord
    created: datetime
    distance: float
    weight: float

    @property
    def age_key(self) -> tuple[datetime, int]:
        """Orders records: the later one speaks."""
        return (self.created, self.stored.id)

    @property
    def worth(self) -> float:
        """2^-distance · weight: 1 for evidence of here and today."""
        return float(2**-self.distance * self.weight)


@dataclass(frozen=True, slots=True)
class Group:
    """One strategy in one scope.

    Attributes:
        latest: the latest record of each run that speaks for it, newest first.
        own_success: the newest success of a plan that was exactly this strategy.
    """

    latest: tuple[Seen, ...]
    own_success: Seen | None

    @property
    def newest(self) -> Seen:
        """The record that speaks for the scope."""
        return self.latest[0]

    @property
    def record(self) -> Record:
        """The newest's."""
        return self.newest.stored.record

    @property
    def pooled(self) -> Pooled | None:
        """The effect over the runs."""
        return pool((seen.stored.record, seen.weight) for seen in self.latest)

    @property
    def successes(self) -> int:
        """Runs in which it worked."""
        return sum(seen.stored.record.outcome == "positive" for seen in self.latest)

    @property
    def verdict(self) -> Verdict:
        """The newest run's, unless a clear majority of at least three runs says that it works all the same.

        A newest success whose pooled effect is no gain is unclear: neither blocked nor offered.
        """
        pooled, runs = self.pooled, len(self.latest)
        if self.record.outcome == "positive":
            return "worked" if pooled is not None and pooled.effect > 1 else "unclear"
        noise = max((seen.stored.record.noise or 0.0 for seen in self.latest), default=0.0)
        clear = pooled is not None and pooled.low is not None and pooled.low > 1 + noise
        return "worked" if runs >= _MANY and self.successes * 2 > runs and clear else "failed"

    @property
    def agree(self) -> int:
        """How many of the runs came to this verdict; for an unclear one, how many saw a gain."""
        return len(self.latest) - self.successes if self.verdict == "failed" else self.successes

    @property
    def expected(self) -> float:
        """ln(speedup) · 2^-distance · weight: what the pooled effect is worth here and now."""
        pooled = self.pooled
        return 0.0 if pooled is None else math.log(pooled.effect) * self.newest.worth


@dataclass(frozen=True, slots=True)
class Standing:
    """A strategy's standing in one scope.

    Attributes:
        group: the scope that decides.
        status: what a prompt is told of it.
        why: one line.
    """

    group: Group
    status: Status
    why: str


def seen_from(
    records: Iterable[StoredRecord], scope: Scope, now: datetime, versions: Mapping[str, str] | None
) -> tuple[Seen, ...]:
    """The related records as they look from `scope` at `now`; one that is given twice counts once."""
    found = {}
    for stored in records:
        far = distance(stored.record.scope, scope)
        if far is not None:
            created = datetime.fromisoformat(stored.created)
            worth = weight(created, now, stored.record.versions, versions)
            found[stored.id, stored.record.run, stored.fingerprint] = Seen(stored, created, far, worth)
    return tuple(found.values())


def grouped(seen: Iterable[Seen]) -> tuple[tuple[Group, ...], ...]:
    """For each strategy its groups, the nearest scope first."""
    found: dict[str, dict[Scope, list[Seen]]] = {}
    for one in seen:
        found.setdefault(one.stored.fingerprint, {}).setdefault(one.stored.record.scope, []).append(one)
    return tuple(
        tuple(sorted(map(_group, scopes.values()), key=lambda group: group.newest.distance))
        for scopes in found.values()
    )


def standing(groups: tuple[Group, ...]) -> Standing:
    """What the groups of one strategy, the nearest first, add up to."""
    nearest = groups[0]
    if nearest.verdict == "failed":
        for other in groups[1:]:
            # What its methods did in other company lifts no block of a plan that failed.
            lifts = other.newest if nearest.record.in_company else other.own_success
            later = lifts is not None and lifts.age_key > nearest.newest.age_key
            if other.verdict == "worked" and later and other.newest.distance < UNBLOCKS_WITHIN:
                failed = f"failed {_where(nearest)} (record {nearest.newest.stored.id})"
                return _offered(other, f"{failed}, but later it worked {_where(other)}")
        return _failed(nearest)
    if nearest.verdict == "unclear":
        assert nearest.pooled is not None
        why = f"runs disagree {_where(nearest)}: pooled effect {nearest.pooled.effect:.2f}x"
        return Standing(nearest, "not told", why)
    return _offered(nearest, f"worked {_where(nearest)}")


def _group(seen: list[Seen]) -> Group:
    """All runs speak; where the newest plan of exactly this strategy failed, only such plans, while it may block."""
    speaking = sorted(seen, key=lambda one: one.age_key)
    plans = [one for one in speaking if not one.stored.record.in_company]
    own = plans[-1] if plans else None
    if own is not None and own.stored.record.outcome != "positive" and own.weight >= STALE_BELOW:
        speaking = plans
    latest = {one.stored.record.run: one for one in speaking}
    successes = [one for one in plans if one.stored.record.outcome == "positive"]
    newest_first = sorted(latest.values(), key=lambda one: one.age_key, reverse=True)
    return Group(tuple(newest_first), successes[-1] if successes else None)


def _failed(group: Group) -> Standing:
    newest = group.newest
    if newest.distance:
        return Standing(group, "not told", f"failed {_where(group)}: it blocks only there")
    if newest.weight < STALE_BELOW:
        why = f"failed here, but its weight {newest.weight:.2f} is under {STALE_BELOW:g}: it may be tried again"
        return Standing(group, "not told", why)
    return Standing(group, "blocked", f"failed here, weight {newest.weight:.2f} (it blocks from {STALE_BELOW:g} up)")


def _offered(group: Group, why: str) -> Standing:
    worth = group.newest.worth
    if worth < LEAST_WORTH:
        return Standing(group, "not told", f"{why}; its evidence is worth {worth:.3f}, under {LEAST_WORTH:.3f}")
    gain = math.exp(group.expected)
    return Standing(group, "preferred", f"{why}; evidence worth {worth:.2f}, so {gain:.2f}x expected here")


def _where(group: Group) -> str:
    far = group.newest.distance
    return f"at distance {far:.2f} on {describe(group.record.scope)}" if far else "here"
