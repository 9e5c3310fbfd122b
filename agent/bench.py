"""`bench`: one kernel built, verified and timed; its speedup over the reference and over the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.asked import Asked
from agent.lab import Measured, Subject, find_subject, open_lab
from agent.task import Task, work_of
from backends.types import Rejected
from profiling.findings import Comparison, Evaluation


def bench(asked: Asked) -> tuple[Mapping[str, Any], str]:
    """Bench a kernel alone, a task's baseline, or another kernel of the task.

    Raises:
        ConfigError, UnfitEnvironment, HarnessBroken: as the exit codes say.
    """
    subject = find_subject(asked, "bench")
    with open_lab(subject.config) as lab:
        measured = lab.measure(subject.candidate)
        right = isinstance(measured.outcome, Evaluation) and measured.outcome.verdict == "pass"
        compared = None
        if right and measured.built and measured.baseline:
            compared = lab.harness.compare(measured.baseline.artifact, measured.built.artifact)
    return _report(subject, lab.task, measured, compared)


def _report(
    subject: Subject, task: Task, measured: Measured, against_baseline: Comparison | Rejected | None
) -> tuple[Mapping[str, Any], str]:
    outcome, check = measured.outcome, measured.check
    timing = outcome.timing if isinstance(outcome, Evaluation) else None
    median = timing.median_ms if timing else None
    reference = check.reference_ms if check else None
    work = work_of(task, check)
    compared = against_baseline if isinstance(against_baseline, Comparison) else None
    result = {
        "kernel": str(subject.kernel),
        "backend": task.backend.name,
        "verdict": "fail" if isinstance(outcome, Rejected) else outcome.verdict,
        "reason": _reason(outcome, against_baseline),
        "evidence": outcome.evidence if isinstance(outcome, Rejected) else None,
        "median_ms": median,
        "iqr_ms": timing.iqr_ms if timing else None,
        "samples": len(timing.samples_ms) if timing else None,
        "samples_ms": list(timing.samples_ms) if timing else None,
        "outside_ms": timing.outside_ms if timing else None,
        "l2": subject.config.measure.l2,
        "reference_ms": reference,
        "speedup": _ratio(reference, median),
        "speedup_over_baseline": compared.speedup if compared else None,
        "speedup_over_baseline_interval": [compared.low, compared.high] if compared else None,
        "gflops": _rate(work.flops, median),
        "gbps": _rate(work.bytes, median),
        "notes": list(task.notes),
    }
    return result, _text(result)


def _reason(outcome: Evaluation | Rejected, compared: Comparison | Rejected | None) -> str | None:
    if isinstance(outcome, Rejected):
        return f"{outcome.stage}: {outcome.reason}"
    if isinstance(compared, Rejected):
        return f"not compared with the baseline: {compared.reason}"
    return outcome.reason


def _ratio(over: float | None, under: float | None) -> float | None:
    return None if over is None or not under else over / under


def _rate(amount: float | None, ms: float | None) -> float | None:
    """Giga-units per second."""
    return None if amount is None or not ms else amount / ms / 1e6


def _text(result: Mapping[str, Any]) -> str:
    shown = ("verdict", "reason", "median_ms", "iqr_ms", "samples", "reference_ms", "speedup", "speedup_over_baseline")
    lines = []
    for name in (*shown, "gflops", "gbps"):
        value = result[name]
        if value is not None:
            label = "speedup_over_reference" if name == "speedup" else name
            lines.append(f"{label:22} {value:.5g}" if isinstance(value, float) else f"{label:22} {value}")
    if result["evidence"]:
        lines.append(result["evidence"])
    return "\n".join([*lines, *result["notes"]])
