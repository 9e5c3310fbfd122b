"""Profiles one build, in a run or outside one: by counters of the CPU, or by Nsight Compute on a GPU."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backends.types import Built
from profiling.counters import profile_cpu
from profiling.findings import Ceilings, Profile, Work
from profiling.harness.harness import Harness
from profiling.ncu.command import Level
from profiling.ncu.runner import Collected, collect

# One profile may take this long; past it a run goes on with counted work and says so.
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a kernel before it is profiled.

    Attributes:
        time_ms: its time, never measured under a profiler.
        work: what one call must do.
        ceilings: of this device.
        dtype: the arithmetic that the operations are counted at.
    """

    time_ms: float
    work: Work
    ceilings: Ceilings
    dtype: str


def on_cpu(harness: Harness, built: Built, known: Known, mix: Mapping[str, int | float | str]) -> Profile:
    """Counters of one call, or counted work alone; `mix` is from its disassembly, empty without one."""
    numbers = {name: value for name, value in mix.items() if not isinstance(value, str)}
    return profile_cpu(
        harness.solo_command(built.artifact),
        harness.empty_command(),
        time_ms=known.time_ms,
        work=known.work,
        ceilings=known.ceilings,
        mix=numbers or None,
        dtype=known.dtype,
        timeout_s=_TIMEOUT_S,
    )


def on_gpu(harness: Harness, built: Built, level: Level, folder: Path) -> Collected:
    """What Nsight Compute says of one call; its report stays in `folder`, which is emptied first.

    Raises:
        NcuFault: there is no profile; go on with a `degraded_profile`.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with harness.alone():  # another run's timing would be disturbed, and its kernels' counters read
        command = harness.profiled_command(built.artifact)
        return collect(
            command, folder=folder, level=level, timeout_s=_TIMEOUT_S, environment=harness.profiled_environment()
        )


def with_work(collected: Collected, known: Known) -> Profile:
    """The profile that ncu's output and the known work make."""
    return collected.profile(time_ms=known.time_ms, work=known.work, ceilings=known.ceilings, dtype=known.dtype)
