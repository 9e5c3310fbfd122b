"""What to expect of a method before it is tried: its effect, and the chance that it does not get implemented."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from memory.pooling import pool
from memory.standing import LEAST_WORTH, Seen
from memory.types import Prior

FAILS_AT_FIRST = 0.25
"""The chance of failing that is assumed of a method nobody has tried."""

FAILS_WORTH = 2.0
"""How many attempts that assumption is worth."""

EFFECT_WORTH = 1.0
"""How many measurements the assumption of no effect is worth."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt at one method: how much of a failure to implement it was (0 to 1), and the record of its effect."""

    method: str
    seen: Seen
    failed: float
    measured: bool


def priors(seen: Iterable[Seen]) -> tuple[Prior, ...]:
    """A prior for each method that related records tell something of, the most promising first.

    Each record counts by 2^-distance · weight. A method's effect comes from its own attributions alone, as ln(speedup)
    drawn towards 0 by `EFFECT_WORTH` measurements of nothing. Failing is a rejected record of the method; a plan of n
    methods of which no branch passed is a failure of 1/n for each. The chance is drawn towards `FAILS_AT_FIRST`.
    """
    attempts: dict[str, list[_Attempt]] = {}
    for attempt in _attempts(list(seen)):
        attempts.setdefault(attempt.method, []).append(attempt)
    found = [_prior(method, tried) for method, tried in attempts.items()]
    told = [prior for prior in found if prior.weight >= LEAST_WORTH]
    return tuple(sorted(told, key=lambda p: (-_promise(p), p.fails, p.method)))


def _promise(prior: Prior) -> float:
    return math.log(prior.effect or 1.0) * (1 - prior.fails)


def _attempts(seen: list[Seen]) -> Iterator[_Attempt]:
    alone = {_attempt_of(one, one.stored.record.strategy.methods[0]) for one in seen if _is_single(one)}
    for one in seen:
        record = one.stored.record
        if _is_single(one):
            yield _Attempt(record.strategy.methods[0], one, float(record.outcome == "rejected"), True)
            continue
        for method in record.strategy.methods:
            # Where the method's own attribution is known, the plan as a whole adds nothing.
            if _attempt_of(one, method) not in alone:
                failed = 1 / len(record.strategy.methods) if record.outcome == "rejected" else 0.0
                yield _Attempt(method, one, failed, False)


def _is_single(seen: Seen) -> bool:
    return len(seen.stored.record.strategy.methods) == 1


def _attempt_of(seen: Seen, method: str) -> tuple[object, ...]:
    record = seen.stored.record
    return (record.run, record.iteration, record.scope, method)


def _prior(method: str, attempts: list[_Attempt]) -> Prior:
    weight = sum(a.seen.worth for a in attempts)
    failing = sum(a.seen.worth * a.failed for a in attempts)
    measured = [(a.seen.stored.record, a.seen.worth) for a in attempts if a.measured]
    pooled = pool(measured)
    worth = sum(w for record, w in measured if record.effect is not None)
    effect = None if pooled is None else math.exp(math.log(pooled.effect) * worth / (worth + EFFECT_WORTH))
    return Prior(
        method=method,
        effect=effect,
        low=pooled.low if pooled else None,
        high=pooled.high if pooled else None,
        fails=(failing + FAILS_AT_FIRST * FAILS_WORTH) / (weight + FAILS_WORTH),
        tried=len(attempts),
        failed=sum(a.failed > 0 for a in attempts),
        weight=weight,
    )
