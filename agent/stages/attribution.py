"""Classes: what each method's presence and effect add up to. Missing evidence is never a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.artefacts import write_json
from agent.events import Attributed, Attribution, MethodClass
from agent.paths import iteration_folder
from agent.plan import Plan
from agent.run import Run
from agent.stages.ablation import AUDIT_TOLERANCE, Ablation
from agent.stages.switches import ALL
from backends.types import Rejected
from profiling.findings import Axis, Comparison, MethodPresence

# Attributions that leave more than this share of the gain unexplained point at methods that work together.
_UNEXPLAINED = 0.25


def attribute_champion(
    run: Run,
    iteration: int,
    plan: Plan,
    presence: Sequence[MethodPresence],
    ablations: Mapping[str, Ablation],
    champion: Comparison | Rejected,
) -> Attributed:
    """The iteration's attribution table, logged once and written to `attribution.json`."""
    key = run.key(iteration, "attribution")

    def classify() -> Attributed:
        rows, audit = attribute({m.id: m.axis for m in plan.methods}, presence, ablations, champion, run.smallest_gain)
        gain_ms = champion.delta_ms if isinstance(champion, Comparison) else None
        return Attributed(key=key, iteration=iteration, gain_ms=gain_ms, rows=rows, audit=audit)

    attributed = run.journal.once(Attributed, key, classify)
    table = attributed.model_dump(mode="json", include={"iteration", "gain_ms", "rows", "audit"})
    write_json(iteration_folder(run.folder, iteration) / "attribution.json", table)
    return attributed


def attribute(
    methods: Mapping[str, Axis],
    presence: Sequence[MethodPresence],
    ablations: Mapping[str, Ablation],
    champion: Comparison | Rejected | None,
    smallest_gain: float,
) -> tuple[tuple[Attribution, ...], str | None]:
    """The attribution table, and the switch audit in one line (None: nothing was ablated).

    Args:
        methods: their ids, each with its axis.
        presence: their machine-code evidence.
        ablations: the champion without each; `all` is the audit.
        champion: the kernel they were applied to (a) against the champion (b); None where more was applied than these,
            so that they need not explain its gain.
        smallest_gain: relative gain below which nothing is claimed.
    """
    sound, audit = audit_switches(ablations.get(ALL)) if ablations else (True, None)
    found = {p.method: p for p in presence}
    rows = [_row(m, axis, found.get(m), ablations.get(m), smallest_gain) for m, axis in methods.items()]
    if not sound:
        rows = [_void(row, audit or "") if row.form == "switch" else row for row in rows]
    return tuple(_mark_interaction(rows, champion, smallest_gain)), audit


def audit_switches(all_off: Ablation | None) -> tuple[bool, str | None]:
    """Whether the kernel with all switches off performs like the kernel that the methods were applied to.

    Without that evidence attributions by switch prove nothing: a slow #else branch would look like a fast method.
    """
    if all_off is None:
        return False, "not possible: not every method has a switch"
    comparison = all_off.comparison
    if not isinstance(comparison, Comparison):
        rejected = comparison or all_off.built.rejected
        return False, f"not possible: with all methods off, {rejected.reason if rejected else 'nothing was measured'}"
    ratio = f"with all methods off {comparison.speedup:.3f}x the time of the kernel they were applied to"
    if comparison.low > 1 + AUDIT_TOLERANCE:
        return False, f"failed: {ratio}; the #else branches are slower, so attributions by switch are void"
    return True, f"passed: {ratio}"


def _row(
    method: str, axis: Axis, presence: MethodPresence | None, ablation: Ablation | None, smallest_gain: float
) -> Attribution:
    verdict = presence.verdict if presence else "unavailable"
    comparison = None if ablation is None else ablation.comparison
    measured = comparison if isinstance(comparison, Comparison) else None
    method_class, reason = _classify(verdict, presence, ablation, smallest_gain)
    return Attribution(
        method=method,
        axis=axis,
        method_class=method_class,
        attribution_ms=measured.delta_ms if measured else None,
        low_ms=measured.delta_low_ms if measured else None,
        high_ms=measured.delta_high_ms if measured else None,
        presence=verdict,
        form=ablation.built.form if ablation else None,
        reason=reason,
    )


def _classify(
    verdict: str, presence: MethodPresence | None, ablation: Ablation | None, smallest_gain: float
) -> tuple[MethodClass, str]:
    if verdict == "absent":
        return "implementation_failed", f"not in the machine code: {presence.reason if presence else ''}"
    if ablation is None:
        return "unverified", "not ablated"
    if ablation.built.rejected is not None:
        return "unverified", f"without it: {ablation.built.rejected.reason}"
    if ablation.built.code_differs is False and ablation.built.form == "rewrite":
        return "unverified", "the rewrite without it is the same machine code"
    if ablation.built.code_differs is False:
        return "implementation_failed", "turning it off changes no machine code"
    comparison = ablation.comparison
    if not isinstance(comparison, Comparison):
        return "unverified", f"without it: {comparison.reason if comparison else 'not measured'}"
    if verdict == "unavailable" or (verdict == "none" and ablation.built.code_differs is None):
        return "unverified", "no machine-code evidence of its presence"
    slower = comparison.low - 1
    effect = f"{comparison.speedup:.3f}x [{comparison.low:.3f}, {comparison.high:.3f}] with it"
    if slower > smallest_gain:
        return "effective", effect
    return "ineffective", f"{effect}: the lower end does not clear {1 + smallest_gain:.3f}"


def _void(row: Attribution, audit: str) -> Attribution:
    if row.method_class in ("implementation_failed", "unverified"):
        return row
    void = {"method_class": "unverified", "attribution_ms": None, "low_ms": None, "high_ms": None}
    return row.model_copy(update={**void, "reason": f"switch audit {audit}"})


def _mark_interaction(
    rows: list[Attribution], champion: Comparison | Rejected | None, smallest_gain: float
) -> list[Attribution]:
    """Where attributions do not add up to a claimable gain, no method that is present is called ineffective."""
    if not isinstance(champion, Comparison) or champion.low <= 1 + smallest_gain or len(rows) < 2:
        return rows
    gain_ms = champion.delta_ms
    explained = sum(row.attribution_ms or 0.0 for row in rows if row.method_class == "effective")
    if gain_ms - explained <= max(_UNEXPLAINED * gain_ms, gain_ms - champion.delta_low_ms):
        return rows
    reason = f"the attributions explain {explained:.4g} of {gain_ms:.4g} ms: methods work together"
    return [
        row.model_copy(update={"method_class": "interaction", "reason": f"{row.reason}; {reason}"})
        if row.method_class == "ineffective"
        else row
        for row in rows
    ]
