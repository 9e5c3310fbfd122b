"""Methods that help only together: each is needed, and none suffices, by an iteration's attributions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from agent.events import Attribution
from agent.stages.ablation import Ablation
from profiling.findings import Comparison


@dataclass(frozen=True, slots=True)
class Pair:
    """Two methods that help only together.

    Attributes:
        methods: their ids, in the order of the plan.
        effect, low, high: speedup of both together over the kernel they were applied to, with its 95% interval.
        alone: speedup with the first alone and with the second alone, the rest of the plan left out.
    """

    methods: tuple[str, str]
    effect: float
    low: float
    high: float
    alone: tuple[float, float]


def find_pairs(
    rows: Sequence[Attribution], ablations: Mapping[str, Ablation], champion: Comparison, smallest_gain: float
) -> tuple[Pair, ...]:
    """The pairs of a plan that help only together, no method in two of them.

    With S the champion's speedup and e(m) its speedup over itself without m: both together make
    J = S / Π e(others), the first alone J / e(second). They are a pair where each is `effective`, J clears the noise,
    and either alone does not. All methods of the plan must have been compared, or J would hold what others did.

    Args:
        rows: the attribution table.
        ablations: the champion (b) against it without each method (a).
        champion: the kernel that the plan was applied to (a) against the champion (b).
        smallest_gain: relative gain below which nothing is claimed.
    """
    effects = {row.method: _comparison(ablations.get(row.method)) for row in rows}
    known = {method: found for method, found in effects.items() if found is not None}
    if len(known) < len(rows):
        return ()
    effective = [row.method for row in rows if row.method_class == "effective"]
    pairs: list[Pair] = []
    for first, second in combinations(effective, 2):
        if any({first, second} & set(pair.methods) for pair in pairs):
            continue
        others = [found for method, found in known.items() if method not in (first, second)]
        joint = math.log(champion.speedup) - sum(math.log(other.speedup) for other in others)
        half = math.sqrt(sum(_half_width(found) ** 2 for found in (champion, *others)))
        alone = (
            math.exp(joint - math.log(known[second].speedup)),
            math.exp(joint - math.log(known[first].speedup)),
        )
        low = math.exp(joint - half)
        if low > 1 + smallest_gain and max(alone) <= 1 + smallest_gain:
            pairs.append(Pair((first, second), math.exp(joint), low, math.exp(joint + half), alone))
    return tuple(pairs)


def _comparison(ablation: Ablation | None) -> Comparison | None:
    found = None if ablation is None else ablation.comparison
    return found if isinstance(found, Comparison) else None


def _half_width(comparison: Comparison) -> float:
    return (math.log(comparison.high) - math.log(comparison.low)) / 2
