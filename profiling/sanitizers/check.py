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
from profiling.sanitizers.shapes import NONE_SMALL, small_cases
from profiling.types import Problem

# One call under one tool. What imports torch first takes longer.
_TIMEOUT_S = 30.0
_TRITON_TIMEOUT_S = 90.0
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

    def check(self, source: Path, built: Built) -> SanitizerReport:
        """Run them over one kernel. Nothing of it is timed, but it keeps the machine busy: other timings wait.

        Args:
            source: the kernel.
            built: its build, as it is timed. A C++ kernel is built anew with each sanitizer.

        Raises:
            ToolchainError: no compiler.
            HarnessFault: inputs could not be staged.
        """
        cases = small_cases(self.problem.timed, self.problem.checks, self.dropped)
        if not cases:
            return report((tool, Unavailable(tool, NONE_SMALL)) for tool in self.tools)
        if self.problem.gpu is None:
            return self._on_host(source, cases)
        return self._on_gpu(source, built, cases)

    def _on_host(self, source: Path, cases: Sequence[int | None]) -> SanitizerReport:
        def build(tool: Tool) -> host.SanitizedBuild | Unavailable:
            return host.build(tool, self.backend, self.problem.signature, source, self.spec, self.cache)

        def run(job: tuple[host.SanitizedBuild, Path]) -> tuple[Tool, Outcome]:
            found = host.run(*job, self._names, threads=self.threads, timeout_s=_TIMEOUT_S)
            return job[0].tool, found

        with ThreadPoolExecutor(len(HOST_TOOLS)) as pool:
            builds = list(pool.map(build, HOST_TOOLS))
        with self.harness.alone(), ThreadPoolExecutor(_cores()) as pool:
            staged = [self.harness.stage_apart(case) for case in cases]
            jobs = [(b, data) for b in builds if not isinstance(b, Unavailable) for data in staged]
            return report([*((b.tool, b) for b in builds if isinstance(b, Unavailable)), *pool.map(run, jobs)])

    def _on_gpu(self, source: Path, built: Built, cases: Sequence[int | None]) -> SanitizerReport:
        environment = {**self.harness.profiled_environment(), **_UNCACHED}
        timeout_s = _TRITON_TIMEOUT_S if self.problem.backend == "triton" else _TIMEOUT_S
        if gpu.find_sanitizer() is None:
            return report((tool, Unavailable(tool, gpu.MISSING)) for tool in GPU_TOOLS)
        with (
            tempfile.TemporaryDirectory(prefix="roofclimb-sanitizer-") as folder,
            self.harness.alone(),
            ThreadPoolExecutor(min(_cores(), len(GPU_TOOLS) * len(cases))) as pool,
        ):
            staged = {case: self.harness.stage_apart(case) for case in cases}

            def run(number: int, tool: Tool, case: int | None) -> tuple[Tool, Outcome]:
                place = Path(folder, f"{number}")
                place.mkdir()
                command = self.harness.profiled_command(built.artifact, staged[case])
                return tool, gpu.run(
                    tool,
                    command,
                    source.name,
                    self._names,
                    folder=place,
                    environment=environment,
                    timeout_s=timeout_s,
                    number=number,
                )

            jobs = [(tool, case) for tool in GPU_TOOLS for case in cases]
            return report(pool.map(run, range(len(jobs)), *zip(*jobs, strict=True)))

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.problem.timed.arguments)


def _cores() -> int:
    return max(1, len(os.sched_getaffinity(0)))
