"""One effect out of several measurements of it: random effects, so that runs that disagree give a wide interval."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from memory.types import Record

_Z95 = 1.959964
_LEAST_ERROR = 1e-3
"""A standard error of ln(speedup) below this is not believed: it would outvote every other run."""


@dataclass(frozen=True, slots=True)
class Pooled:
    """A speedup with its 95% interval (None where no measurement had one), from `count` measurements."""

    effect: float
    low: float | None
    high: float | None
    count: int


@dataclass(frozen=True, slots=True)
class _Measured:
    log: float
    error: float | None
    weight: float
    low: float | None
    high: float | None


def pool(records: Iterable[tuple[Record, float]]) -> Pooled | None:
    """The effect of records of one thing, each with the weight it has today; None where none was measured.

    By DerSimonian and Laird (Controlled Clinical Trials 7, 1986): ln(speedup)s weighted by weight / (error² + τ²), with
    τ² the variance between runs beyond their own errors. Errors come from the records' intervals; measurements without
    one count only where none has one.
    """
    measured = [_measured(record, weight) for record, weight in records if record.effect is not None]
    sure = [(m.log, m.error, m.weight) for m in measured if m.error is not None]
    if not sure:
        total = sum(m.weight for m in measured)
        if not total:
            return None
        mean = sum(m.weight * m.log for m in measured) / total
        return Pooled(math.exp(mean), None, None, len(measured))
    if len(sure) == 1:  # its own interval, which need not be symmetric
        only = next(m for m in measured if m.error is not None)
        return Pooled(math.exp(only.log), only.low, only.high, 1)
    between = _between([(log, error) for log, error, _ in sure])
    weights = [weight / (error**2 + between) for _, error, weight in sure]
    total = sum(weights)
    mean = sum(w * log for w, (log, _, _) in zip(weights, sure, strict=True)) / total
    variance = sum(w**2 * (error**2 + between) for w, (_, error, _) in zip(weights, sure, strict=True)) / total**2
    half = _Z95 * math.sqrt(variance)
    return Pooled(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(sure))


def _measured(record: Record, weight: float) -> _Measured:
    assert record.effect is not None
    error = None
    if record.effect_low is not None and record.effect_high is not None:
        error = max((math.log(record.effect_high) - math.log(record.effect_low)) / (2 * _Z95), _LEAST_ERROR)
    return _Measured(math.log(record.effect), error, max(weight, 1e-9), record.effect_low, record.effect_high)


def _between(measured: list[tuple[float, float]]) -> float:
    """τ² by the method of moments; 0 where the errors explain all differences."""
    if len(measured) < 2:
        return 0.0
    inverse = [1 / error**2 for _, error in measured]
    total = sum(inverse)
    mean = sum(a * log for a, (log, _) in zip(inverse, measured, strict=True)) / total
    spread = sum(a * (log - mean) ** 2 for a, (log, _) in zip(inverse, measured, strict=True))
    scale = total - sum(a**2 for a in inverse) / total
    return max(0.0, (spread - (len(measured) - 1)) / scale)
