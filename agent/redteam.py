"""Plays known exploits and their honest twins against the harness that runs use. Tests and the command share this."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agent.config import load_config
from agent.faults import as_exit_codes
from agent.lab import Lab, open_lab
from agent.task import check_candidate
from backends.registry import get_backend
from backends.types import Built, Rejected, ToolchainError
from profiling.findings import Evaluation
from profiling.gpu_device import find_gpu
from profiling.redteam.cases import Case


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one kernel.

    Attributes:
        verdict: `error` is a harness that could not say; `skipped` a cheat that only a missing layer would stop.
        by: what rejected it: the build, the harness, a comparison, or the check of signature and libraries before it
            would be run. That check is the weakest and asked last: a cheat is run all the same.
        reason: one line.
    """

    verdict: Literal["passed", "rejected", "skipped", "error"]
    by: Literal["build", "harness", "comparison", "check"] | None
    reason: str


@dataclass(frozen=True, slots=True)
class Played:
    """One case played."""

    case: Case
    cheat: Outcome
    twin: Outcome

    @property
    def as_expected(self) -> bool:
        """Whether the cheat was rejected for its own reason: one that does not build, say, shows nothing."""
        return self.cheat.verdict == "rejected" and bool(re.search(self.case.expect, self.cheat.reason))

    @property
    def ok(self) -> bool:
        """Whether the twin passed, and the cheat was rejected for its reason, skipped, or is a known gap."""
        excused = self.cheat.verdict == "skipped" or self.case.gap is not None
        return (self.as_expected or excused) and self.twin.verdict == "passed"

    @property
    def gap(self) -> bool:
        """Whether it is a known gap that is open here."""
        return self.case.gap is not None and not self.as_expected


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A built kernel, and why it would not be run in a run; or why it could not be built."""

    built: Built | Rejected
    refused: Rejected | None


def unavailable(backend: str) -> str | None:
    """Why a backend's cases cannot be played on this machine, or None."""
    try:
        found = get_backend(backend)
        found.toolchain()
        if found.device == "gpu":
            find_gpu(0)
    except ToolchainError as error:
        return str(error)
    return None


def play(cases: Sequence[Case], layers: Callable[[str, list[str]], None]) -> Iterator[Played]:
    """Play cases, those of one task in one harness, one after the other: each shows what the one before it left.

    Args:
        cases: which.
        layers: told, for each task, the backend and the layers of the sandbox that are missing.

    Raises:
        RoofclimbError: the machine is unfit, or the harness broke.
    """
    for task in dict.fromkeys(case.task for case in cases):
        together = [case for case in cases if case.task == task]
        with open_lab(load_config(task)) as lab, as_exit_codes():
            layers(together[0].backend, [name for name, stands in lab.harness.layers().items() if not stands])
            lab.check_task(lab.build_baseline())
            kernels = _build(lab, [path for case in together for path in (case.cheat, case.honest)])
            for number, case in enumerate(together):
                yield _play(lab, case, *kernels[2 * number : 2 * number + 2])


def _build(lab: Lab, sources: Sequence[Path]) -> list[_Kernel]:
    def build(source: Path) -> _Kernel:
        built = lab.task.backend.build(source, lab.task.spec, lab.builds)
        held = built if isinstance(built, Rejected) else check_candidate(lab.task, source, built)
        return _Kernel(built, held if isinstance(held, Rejected) else None)

    with ThreadPoolExecutor(max_workers=max(1, lab.machine.cpu.usable_cores or 1)) as pool:
        return list(pool.map(build, sources))


def _play(lab: Lab, case: Case, cheat: _Kernel, twin: _Kernel) -> Played:
    missing = [layer for layer in case.needs if not lab.harness.layers()[layer]]
    honest = _evaluated(lab, twin, checked=not case.compared)
    if missing:
        return Played(case, Outcome("skipped", None, f"only {', '.join(missing)} stops it, not granted here"), honest)
    if case.compared and isinstance(cheat.built, Built) and isinstance(twin.built, Built):
        return Played(case, _compared(lab, twin.built, cheat.built), honest)
    return Played(case, _evaluated(lab, cheat, checked=True), honest)


def _evaluated(lab: Lab, kernel: _Kernel, *, checked: bool) -> Outcome:
    """Whether a kernel passes; `checked`: it must pass the check before it would be run, too."""
    if isinstance(kernel.built, Rejected):
        return Outcome("rejected", "build", kernel.built.reason)
    found = judged(lab.harness.evaluate(kernel.built.artifact))
    if found.verdict == "passed" and checked and kernel.refused is not None:
        return Outcome("rejected", "check", kernel.refused.reason)
    return found


def judged(found: Evaluation) -> Outcome:
    """An evaluation as the outcome of a case."""
    if found.verdict == "pass":
        return Outcome("passed", None, "")
    rejected = found.verdict in ("fail", "suspect")
    return Outcome("rejected" if rejected else "error", "harness" if rejected else None, found.reason or found.verdict)


def _compared(lab: Lab, honest: Built, cheat: Built) -> Outcome:
    """Whether a cheat becomes a gain that a run would accept."""
    found = lab.harness.compare(honest.artifact, cheat.artifact)
    if isinstance(found, Rejected):
        return Outcome("rejected", "comparison", found.reason)
    gain = f"{found.low:.4g} to {found.high:.4g} times as fast as its twin"
    if found.low > 1.0 + lab.task.config.search.noise:
        return Outcome("passed", None, gain)
    return Outcome("rejected", "comparison", f"no gain: {gain}")
