"""All tools that there are for a kernel, side by side, each at the task's small shapes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from backends.types import Backend, BuildSpec, Built
from profiling.harness.harness import Harness
from profiling.sanitizers import gpu, host
from profiling.sanitizers.findings import GPU_TOOLS, HOST_TOOLS, Outcome, SanitizerReport, Tool, Unavailable, report
from profiling.sanitizers.kept import Kept
from profiling.sanitizers.shapes import NONE_SMALL, small_cases
from profiling.types import Case, Problem

# One call under one tool. What imports torch first takes longer.
_TIMEOUT_S = 30.0
_TRITON_TIMEOUT_S = 90.0
_Job = tuple[Tool, int | None]
"""A tool, and the number of an extra case, None for the timed one."""
_UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}  # else an overrun of what a kernel allocates stays in torch's pool


@dataclass(frozen=True, slots=True)
class Sanitizers:
    """What runs kernels of one task under sanitizers.

    Attributes:
        harness: stages inputs and knows how calls are made.
        problem: the task.
        backend: of its kernels.
        spec: how they are built.
        cache: where builds are kept.
        threads: that a C++ kernel may use.
        dropped: dims of extra cases that the baseline fails.
    """

    harness: Harness
    problem: Problem
    backend: Backend
    spec: BuildSpec
    cache: Path
    threads: int
    dropped: Collection[Mapping[str, int]] = ()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools for kernels of this task."""
        return HOST_TOOLS if self.problem.gpu is None else GPU_TOOLS

    def check(self, source: Path, built: Built, kept: Kept | None = None) -> SanitizerReport:
        """Run them over one kernel. Nothing of it is timed, but it keeps the machine busy: other timings wait.

        Args:
            source: the kernel.
            built: its build, as it is timed. A C++ kernel is built anew with each sanitizer.
            kept: what they found of this kernel in other runs, and need not look for again.

        Raises:
            ToolchainError: no compiler.
            HarnessFault: inputs could not be staged.
        """
        cases = small_cases(self.problem.timed, self.problem.checks, self.dropped)
        if not cases:
            return report((tool, Unavailable(tool, NONE_SMALL)) for tool in self.tools)
        jobs = [(tool, case) for tool in self.tools for case in cases]
        outcomes = {} if kept is None else self._known(kept, jobs)
        left = [job for job in jobs if job not in outcomes]
        if left:
            made = self._on_host(source, left) if self.problem.gpu is None else self._on_gpu(source, built, left)
            for (tool, case), outcome in made.items():
                if kept is not None:
                    kept.save(tool, self.problem, self._case(case), outcome)
            outcomes |= made
        return report((tool, outcomes[tool, case]) for tool, case in jobs)

    def _known(self, kept: Kept, jobs: Sequence[_Job]) -> dict[_Job, Outcome]:
        found = {(tool, case): kept.load(tool, self.problem, self._case(case)) for tool, case in jobs}
        return {job: outcome for job, outcome in found.items() if outcome is not None}

    def _case(self, number: int | None) -> Case:
        return self.problem.timed if number is None else self.problem.checks[number]

    def _on_host(self, source: Path, jobs: Sequence[_Job]) -> dict[_Job, Outcome]:
        tools = dict.fromkeys(tool for tool, _ in jobs)

        def build(tool: Tool) -> host.SanitizedBuild | Unavailable:
            return host.build(tool, self.backend, self.problem.signature, source, self.spec, self.cache)

        with ThreadPoolExecutor(len(tools)) as pool:
            builds = dict(zip(tools, pool.map(build, tools), strict=True))
        with self.harness.alone(), ThreadPoolExecutor(_cores()) as pool:
            staged = {case: self.harness.stage_apart(case) for _, case in jobs}

            def run(job: _Job) -> Outcome:
                built = builds[job[0]]
                if isinstance(built, Unavailable):
                    return built
                return host.run(built, staged[job[1]], self._names, threads=self.threads, timeout_s=_TIMEOUT_S)

            return dict(zip(jobs, pool.map(run, jobs), strict=True))

    def _on_gpu(self, source: Path, built: Built, jobs: Sequence[_Job]) -> dict[_Job, Outcome]:
        environment = {**self.harness.profiled_environment(), **_UNCACHED}
        timeout_s = _TRITON_TIMEOUT_S if self.problem.backend == "triton" else _TIMEOUT_S
        if gpu.find_sanitizer() is None:
            return {job: Unavailable(job[0], gpu.MISSING) for job in jobs}
        with (
            tempfile.TemporaryDirectory(prefix="roofclimb-sanitizer-") as folder,
            self.harness.alone(),
            ThreadPoolExecutor(min(_cores(), len(jobs))) as pool,
        ):
            staged = {case: self.harness.stage_apart(case) for _, case in jobs}

            def run(number: int, job: _Job) -> Outcome:
                place = Path(folder, f"{number}")
                place.mkdir()
                command = self.harness.profiled_command(built.artifact, staged[job[1]])
                return gpu.run(
                    job[0],
                    command,
                    source.name,
                    self._names,
                    folder=place,
                    environment=environment,
                    timeout_s=timeout_s,
                    number=number,
                )

            return dict(zip(jobs, pool.map(run, range(len(jobs)), jobs), strict=True))

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.problem.timed.arguments)


def _cores() -> int:
    return max(1, len(os.sched_getaffinity(0)))
