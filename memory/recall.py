"""What earlier evidence says to a run that starts an iteration here and now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from memory.decay import HALF_LIFE_DAYS as HALF_LIFE_DAYS
from memory.priors import priors
from memory.sanitise import clean_text
from memory.scope import describe
from memory.standing import LEAST_WORTH, Group, grouped, seen_from, standing
from memory.types import Advice, Recall, Record, Scope, StoredRecord

# So that where and when it was fits into the same line.
_LONGEST_REASON = 160


def recall(
    records: Iterable[StoredRecord],
    scope: Scope,
    *,
    now: datetime,
    limit: int = 8,
    versions: Mapping[str, str] | None = None,
) -> Recall:
    """Merge the records of this run and of all runs into what a run in `scope` goes by.

    The latest record of each run speaks for that run, and the newest run for a scope, unless three runs or more pool to
    a clear gain. For each strategy (fingerprint) the nearest related scope decides, except that a later success within
    `UNBLOCKS_WITHIN` outweighs a failure there:

    - `blocked`: it failed (negative or rejected) in exactly this scope, and its weight is at least `STALE_BELOW`.
      Newest first and never cut, because the validator refuses by it. A fingerprint is the whole strategy: a method
      that failed by its own attribution is blocked as a plan of its own, and not in other company. A plan that failed
      stays blocked until that very plan succeeds, whatever its methods do in other company.
    - `preferred`: it succeeded there. The best `limit` by ln(pooled speedup) · 2^-distance · weight, which is the order
      of the measured effects where scope, age and tools are equal.
    - `lessons`: the lessons of related scopes without repetition, at most `limit`, by 2^-distance · weight, newer first
      among equals.
    - `priors`: see `memory.priors`.

    Args:
        records: of both levels, in any order; a record given twice counts once.
        scope: where the next strategy will run.
        now: with a time zone.
        limit: of `preferred` and of `lessons`.
        versions: of today's tools; None leaves their distance out of the weights.
    """
    seen = seen_from(records, scope, now, versions)
    groups = grouped(seen)
    standings = [standing(scopes) for scopes in groups]
    blocked = [s.group for s in standings if s.status == "blocked"]
    preferred = [s.group for s in standings if s.status == "preferred"]
    blocked.sort(key=lambda group: group.newest.age_key, reverse=True)
    preferred.sort(key=lambda group: (-group.expected, group.newest.distance, group.newest.stored.id))
    return Recall(
        blocked=tuple(advice(group) for group in blocked),
        preferred=tuple(advice(group) for group in preferred[:limit]),
        lessons=_lessons([group for scopes in groups for group in scopes], limit),
        priors=priors(seen),
    )


def blocked_by(recalled: Recall, fingerprint: str) -> Advice | None:
    """The evidence that blocks exactly this strategy, None where it may be proposed."""
    return next((advice for advice in recalled.blocked if advice.fingerprint == fingerprint), None)


def advice(group: Group) -> Advice:
    """One line of recall from a strategy's records in the scope that decides."""
    record, pooled = group.record, group.pooled
    return Advice(
        record_id=group.newest.stored.id,
        fingerprint=group.newest.stored.fingerprint,
        methods=record.strategy.methods,
        parameters=record.strategy.parameters,
        effect=pooled.effect if pooled else None,
        evidence=pooled_evidence(group),
        runs=len(group.latest),
        agree=group.agree,
        together=record.together,
    )


def evidence(record: Record) -> str:
    """One line: `0.97x [0.95, 0.99] on gemm/cpp/x86_64/1e8, run_20260101_010203, iteration 2`."""
    if record.effect is None:
        result = _rejection(record)
    else:
        result = _effect(record.effect, record.effect_low, record.effect_high)
    return f"{result} on {describe(record.scope)}, {record.run}, iteration {record.iteration}"


def pooled_evidence(group: Group) -> str:
    """`evidence` of one run; of several the pooled effect, and how many of them agree where not all do."""
    record, pooled, runs = group.record, group.pooled, len(group.latest)
    if runs == 1:
        return evidence(record)
    agree = f"all {runs} runs agree" if group.agree == runs else f"{group.agree} of {runs} runs agree"
    parts = [_rejection(record)] if record.outcome == "rejected" and record.reason else []
    if pooled is not None:
        parts.append(f"{_effect(pooled.effect, pooled.low, pooled.high)} pooled over {pooled.count} runs")
    said = "; ".join(parts) or record.outcome
    return f"{said}, {agree}, on {describe(record.scope)}, newest {record.run}, iteration {record.iteration}"


def _rejection(record: Record) -> str:
    reason = clean_text(record.reason, _LONGEST_REASON)
    return f"{record.outcome}: {reason}" if reason else record.outcome


def _effect(effect: float, low: float | None, high: float | None) -> str:
    return f"{effect:.2f}x" + ("" if low is None or high is None else f" [{low:.2f}, {high:.2f}]")


def _lessons(groups: list[Group], limit: int) -> tuple[str, ...]:
    """Of each strategy and scope the newest's lesson: what it superseded may say the contrary."""
    worth = [group.newest for group in groups if group.newest.worth >= LEAST_WORTH]
    newest_first = sorted(worth, key=lambda seen: seen.age_key, reverse=True)
    ranked = sorted(newest_first, key=lambda seen: -seen.worth)
    unique: dict[str, str] = {}
    for seen in ranked:
        lesson = " ".join(seen.stored.record.lesson.split())
        if lesson:
            unique.setdefault(lesson.rstrip(".").casefold(), lesson)
    return tuple(unique.values())[:limit]
