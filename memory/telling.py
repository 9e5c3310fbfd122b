"""What of a recall goes into a prompt: one line for each thing, within a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memory.sanitise import LONGEST_LESSON, clean_text, shown_parameters
from memory.types import Advice, Prior, Recall

LONGEST_EVIDENCE = 300


def rough_tokens(text: str) -> int:
    """About four characters make a token."""
    return -(-len(text) // 4)


@dataclass(frozen=True, slots=True)
class Told:
    """Lines for a prompt. `more_blocked` strategies had no room; the validator refuses them all the same."""

    preferred: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()
    priors: tuple[str, ...] = ()
    more_blocked: int = 0

    @property
    def empty(self) -> bool:
        """Whether there is nothing to say."""
        return not (self.preferred or self.blocked or self.lessons or self.priors or self.more_blocked)


@dataclass(slots=True)
class _Queue:
    waiting: list[str]
    taken: list[str] = field(default_factory=list)


def tell(
    recall: Recall, tokens: int, *, methods: Collection[str] | None = None, count: Callable[[str], int] = rough_tokens
) -> Told:
    """The recall's lines, the best of each kind first, as many as `tokens` hold.

    Preferred strategies, blocked ones, lessons and priors take turns, so that no kind crowds out another; a kind whose
    next line does not fit is done.

    Args:
        recall: what memory said.
        tokens: how many the lines may take together.
        methods: those on offer, whose priors are told; None for all.
        count: estimates the tokens of a text.
    """
    queues = {
        "preferred": _Queue([advice_line(a) for a in recall.preferred]),
        "blocked": _Queue([advice_line(a) for a in recall.blocked]),
        "lessons": _Queue([clean_text(lesson, LONGEST_LESSON) for lesson in recall.lessons]),
        "priors": _Queue([prior_line(p) for p in recall.priors if methods is None or p.method in methods]),
    }
    left = tokens
    while any(queue.waiting for queue in queues.values()):
        for queue in queues.values():
            if not queue.waiting:
                continue
            cost = count(queue.waiting[0]) + 1
            if cost > left:
                queue.waiting.clear()
                continue
            left -= cost
            queue.taken.append(queue.waiting.pop(0))
    return Told(
        preferred=tuple(queues["preferred"].taken),
        blocked=tuple(queues["blocked"].taken),
        lessons=tuple(queues["lessons"].taken),
        priors=tuple(queues["priors"].taken),
        more_blocked=len(recall.blocked) - len(queues["blocked"].taken),
    )


def advice_line(advice: Advice) -> str:
    """`memory.tiling_cache (tile_m 64): 1.50x [1.40, 1.60] on gemm/…, run_1, iteration 1 (record 7)`."""
    together = "; they help only together" if advice.together else ""
    what = strategy_shown(advice.methods, advice.parameters)
    return f"{what}: {clean_text(advice.evidence, LONGEST_EVIDENCE)}{together} (record {advice.record_id})"


def strategy_shown(methods: Sequence[str], parameters: Mapping[str, Mapping[str, Any]]) -> str:
    """`memory.tiling_cache + compute.simd (memory.tiling_cache: tile_m 64)`."""
    shown = shown_parameters(methods, parameters)
    return " + ".join(methods) + (f" ({shown})" if shown else "")


def prior_line(prior: Prior) -> str:
    """`memory.async_copy: 1.20x expected [1.10, 1.60] measured; fails to be implemented 30% (1 of 4 attempts did)`."""
    effect = "effect not measured"
    if prior.effect is not None:
        measured = "" if prior.low is None or prior.high is None else f" (measured {prior.low:.2f} to {prior.high:.2f})"
        effect = f"{prior.effect:.2f}x expected{measured}"
    attempts = f"{prior.failed} of {prior.tried} attempt{'s' if prior.tried != 1 else ''} did"
    return f"{prior.method}: {effect}; chance of failing to be implemented {prior.fails:.0%} ({attempts})"
