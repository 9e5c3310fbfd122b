"""`bench`: one kernel built, verified and timed; its speedup over the reference and over the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.config import Config, load_config, parse_assignments, resolve, validate, with_overrides
from agent.errors import ConfigError
from agent.faults import as_exit_codes
from agent.machine import Machine, find_machine, say_warning
from agent.paths import cache_folder, find_config
from agent.task import Task, check_candidate, on_machine, open_harness, prepare_task, suspect_ms, work_of
from backends.types import Built, Rejected
from profiling.harness.harness import Harness
from profiling.types import Ceilings, Comparison, Evaluation, TaskCheck, TaskError


@dataclass(frozen=True, slots=True)
class Benched:
    """What one bench found."""

    outcome: Evaluation | Rejected
    check: TaskCheck | None
    against_baseline: Comparison | Rejected | None


@dataclass(frozen=True, slots=True)
class _Lab:
    """What a task's kernels are measured with."""

    task: Task
    machine: Machine
    harness: Harness
    ceilings: Ceilings


def bench_kernel(
    kernel: Path, ref: Path | None, dims: Sequence[str], scalars: Sequence[str], overrides: Sequence[str]
) -> tuple[Mapping[str, Any], str]:
    """Bench a kernel without a task file.

    Raises:
        ConfigError, UnfitEnvironment, HarnessBroken: as the exit codes say.
    """
    for what, path in (("kernel", kernel), ("reference", ref)):
        if path is not None and not path.is_file():
            raise ConfigError(f"{path}: no such {what} file")
    task: dict[str, Any] = {
        "name": "bench",
        "baseline": str(kernel.absolute()),
        "dims": parse_assignments(dims, "--dim"),
        "scalars": parse_assignments(scalars, "--scalar"),
    }
    if ref is not None:
        task["reference"] = str(ref.absolute())
    config = resolve(validate(with_overrides({"task": task}, overrides), "bench"), Path.cwd())
    return _report(config, kernel, *_bench(config, None))


def bench_config(name: str, candidate: Path | None, overrides: Sequence[str]) -> tuple[Mapping[str, Any], str]:
    """Bench a task's baseline, or another kernel of the task.

    Raises:
        ConfigError, UnfitEnvironment, HarnessBroken: as the exit codes say.
    """
    config = load_config(find_config(name), overrides)
    if candidate is not None and not candidate.is_file():
        raise ConfigError(f"{candidate}: no such kernel file")
    return _report(config, candidate or config.task.baseline, *_bench(config, candidate))


def _bench(config: Config, candidate: Path | None) -> tuple[Task, Benched]:
    bound = prepare_task(config)
    cache = cache_folder()
    with as_exit_codes():
        machine = find_machine(config, bound.backend, say_warning)
        task = on_machine(bound, machine)
        ceilings = machine.ceilings(cache, config)
        with open_harness(task, machine, cache) as harness:
            return task, _measure(_Lab(task, machine, harness, ceilings), cache / "builds", candidate)


def _measure(lab: _Lab, cache: Path, candidate: Path | None) -> Benched:
    task, harness = lab.task, lab.harness
    baseline = task.backend.build(task.baseline, task.spec, cache)
    if isinstance(baseline, Rejected):
        if candidate is None:
            return Benched(baseline, None, None)
        raise ConfigError(f"the baseline {task.baseline} does not build: {baseline.reason}")
    if candidate is None:
        return _measure_alone(lab, baseline)
    check = harness.check_task(baseline.artifact) if task.problem.reference else None
    _set_floor(lab, check)
    built = task.backend.build(candidate, task.spec, cache)
    built = built if isinstance(built, Rejected) else check_candidate(task, candidate, built)
    if isinstance(built, Rejected):
        return Benched(built, check, None)
    outcome = harness.evaluate(built.artifact)
    compared = harness.compare(baseline.artifact, built.artifact) if outcome.verdict == "pass" else None
    return Benched(outcome, check, compared)


def _measure_alone(lab: _Lab, built: Built) -> Benched:
    """The kernel is its own baseline: that it is wrong is a verdict, that its task is unfit an error."""
    task, harness = lab.task, lab.harness
    fit = check_candidate(task, task.baseline, built)
    if isinstance(fit, Rejected):
        return Benched(fit, None, None)
    check, unfit = None, None
    if task.problem.reference is not None:
        try:
            check = harness.check_task(built.artifact)
        except TaskError as error:
            unfit = error
    _set_floor(lab, check)
    outcome = harness.evaluate(built.artifact)
    if unfit is not None and outcome.verdict != "fail":
        raise unfit
    return Benched(outcome, check, None)


def _set_floor(lab: _Lab, check: TaskCheck | None) -> None:
    lab.harness.set_floor(suspect_ms(work_of(lab.task, check), lab.ceilings, lab.task, lab.machine.gpu))


def _report(config: Config, kernel: Path, task: Task, benched: Benched) -> tuple[Mapping[str, Any], str]:
    outcome, check = benched.outcome, benched.check
    timing = outcome.timing if isinstance(outcome, Evaluation) else None
    median = timing.median_ms if timing else None
    reference = check.reference_ms if check else None
    work = work_of(task, check)
    compared = benched.against_baseline if isinstance(benched.against_baseline, Comparison) else None
    result = {
        "kernel": str(kernel),
        "backend": task.backend.name,
        "verdict": "fail" if isinstance(outcome, Rejected) else outcome.verdict,
        "reason": _reason(outcome, benched.against_baseline),
        "evidence": outcome.evidence if isinstance(outcome, Rejected) else None,
        "median_ms": median,
        "iqr_ms": timing.iqr_ms if timing else None,
        "samples": len(timing.samples_ms) if timing else None,
        "samples_ms": list(timing.samples_ms) if timing else None,
        "outside_ms": timing.outside_ms if timing else None,
        "l2": config.measure.l2,
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
            lines.append(f"{name:22} {value:.5g}" if isinstance(value, float) else f"{name:22} {value}")
    if result["evidence"]:
        lines.append(result["evidence"])
    return "\n".join([*lines, *result["notes"]])
