"""Lessons: what one method taught, in at most 60 words made from the evidence alone: cause, effect, pitfall."""

from __future__ import annotations

from collections.abc import Sequence

from agent.events import Attribution
from agent.plan import Plan
from agent.stages.interplay import Pair
from memory.wire import LESSON_WORDS
from prompts.renderer import number

_CITED = 2
_LONGEST = 160


def method_lesson(plan: Plan, row: Attribution, family: str, failures: Sequence[str], branches: int) -> str:
    """What an attributed method taught.

    Args:
        plan: names what the method was to cure.
        row: its class, effect and evidence.
        family: the operator family.
        failures: what the iteration's branches failed by, one line each.
        branches: how many branches there were.
    """
    if row.method_class == "implementation_failed":
        effect = f"not implemented: {_cut(row.reason)}"
    else:
        saved = ""
        if row.attribution_ms is not None and row.low_ms is not None and row.high_ms is not None:
            saved = f", {row.attribution_ms:+.4g} ms [{row.low_ms:.4g}, {row.high_ms:.4g}] when switched off"
        effect = f"{row.method_class}, {row.reason}{saved}"
    return _lesson(
        _title(plan, (row.method,), family), cause(plan, (row.method,)), effect, _pitfall(failures, branches)
    )


def pair_lesson(plan: Plan, pair: Pair, family: str, failures: Sequence[str], branches: int) -> str:
    """What a pair taught: that each needs the other."""
    first, second = pair.alone
    effect = (
        f"{pair.effect:.3f}x [{pair.low:.3f}, {pair.high:.3f}] together, {first:.3f}x and {second:.3f}x alone: "
        "plan both or neither"
    )
    return _lesson(_title(plan, pair.methods, family), cause(plan, pair.methods), effect, _pitfall(failures, branches))


def failure_lesson(plan: Plan, family: str, failures: Sequence[str]) -> str:
    """What a plan taught of which no branch was right."""
    effect = f"all {len(failures)} branches failed" if len(failures) > 1 else "its branch failed"
    title = _title(plan, plan.method_ids, family)
    return _lesson(title, cause(plan, plan.method_ids), effect, "; ".join(failures))


def cause(plan: Plan, methods: Sequence[str]) -> str:
    """The metrics that called for the methods, with the values that the plan cited."""
    cited = {t.metric: t.value for m in plan.methods if m.id in methods for t in m.triggers}
    return ", ".join(f"{metric} {number(value)}" for metric, value in list(cited.items())[:_CITED])


def _title(plan: Plan, methods: Sequence[str], family: str) -> str:
    values = [f"{k} {v}" for m in plan.methods if m.id in methods for k, v in m.parameters.items()]
    return f"{' + '.join(methods)}{f' ({chr(44).join(values[:4])})' if values else ''} on {family}"


def _pitfall(failures: Sequence[str], branches: int) -> str:
    return f"{len(failures)} of {branches} branches failed, {failures[0]}" if failures else ""


def _lesson(title: str, cause: str, effect: str, pitfall: str) -> str:
    """All of it where it fits; what is cut first is the end of the pitfall."""
    parts = [f"{title}: cause {cause}", f"effect {effect}"]
    if pitfall:
        parts.append(f"pitfall {_cut(pitfall)}")
    return " ".join("; ".join(parts).split()[:LESSON_WORDS])


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
