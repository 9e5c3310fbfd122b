"""Robust statistics of times. Pure Python, so that the controller needs no numpy."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence

_RESAMPLES = 2000


def median(values: Sequence[float]) -> float:
    """The median of at least one value."""
    return statistics.median(values)


def interquartile_range(values: Sequence[float]) -> float:
    """Third less first quartile (linear interpolation), 0.0 for a single value."""
    if len(values) < 2:
        return 0.0
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return third - first


def median_noise(values: Sequence[float]) -> float:
    """Relative standard error of the median, from the interquartile range (1.349 sigma, and 1.253 sigma/sqrt(n))."""
    middle = median(values)
    if middle <= 0.0:
        return 0.0
    return 1.253 * interquartile_range(values) / 1.349 / math.sqrt(len(values)) / middle


def settled(values: Sequence[float], target: float = 0.005, fall: float = 0.9) -> bool:
    """Whether more samples would not help: the noise is under `target`, or stopped falling.

    It stopped falling when the noise of all values is not under `fall` times that of the first half (halving the
    error's square would give 0.71).
    """
    noise = median_noise(values)
    return noise < target or noise > fall * median_noise(values[: max(1, len(values) // 2)])


def bootstrap_interval(
    groups: Sequence[Sequence[float]],
    rng: random.Random,
    statistic: Callable[[Sequence[float]], float] = median,
) -> tuple[float, float]:
    """95% interval of `statistic` over all values, resampling groups (workers), then values (blocks) within each.

    Args:
        groups: one non-empty sequence per pair of workers.
        rng: source of the resampling.
        statistic: of the pooled values.
    """
    estimates = []
    for _ in range(_RESAMPLES):
        pooled: list[float] = []
        for group in rng.choices(groups, k=len(groups)):
            pooled.extend(rng.choices(group, k=len(group)))
        estimates.append(statistic(pooled))
    estimates.sort()
    return estimates[round(0.025 * (_RESAMPLES - 1))], estimates[round(0.975 * (_RESAMPLES - 1))]
