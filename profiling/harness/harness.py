"""What everything above measures with: starts the oracle, asks it for evidence, derives the verdict."""

from __future__ import annotations

import math
import random
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from backends import walls
from backends.build_cache import private_folder
from backends.types import Rejected
from profiling.exclusive import exclusive_timing
from profiling.findings import Comparison, Evaluation, TaskCheck
from profiling.harness import triton_launcher, verdict, walled, wire
from profiling.harness.oracle_process import OracleProcess
from profiling.harness.runner_build import Native, build_native
from profiling.types import HarnessFault, Limits, MeasureSettings, Problem, TaskError

_DOUBTS = 3  # a kernel is `suspect` when this many measurements in a row are


@dataclass(frozen=True, slots=True)
class TritonParts:
    """What workers of Triton kernels need.

    Attributes:
        arch: of the GPU, such as `sm_90`.
        cache: where builds are kept.
        empty: a build whose `run_kernel` does nothing.
    """

    arch: str
    cache: Path
    empty: Path


class Harness:
    """Verifies, times and compares kernels of one task. Use as a context.

    Args:
        problem: the task.
        settings: how to measure.
        limits: around each worker.
        cache: folder for the harness's own builds and, while it is open, staged data.
        environment: what workers see beside the usual (where the CUDA run-time lies).
        triton: for a Triton task, what its workers need beside.
        stopped: asked while another run times: True ends the wait with an InterruptedError.
        waiting: called once when that wait has lasted 2 s; None prints a line to standard error.

    Raises:
        TaskError: the reference cannot be loaded, or the task's dims do not fit this machine.
        ToolchainError: no C++ compiler.
        HarnessFault: the oracle or a worker does not start.
    """

    def __init__(
        self,
        problem: Problem,
        settings: MeasureSettings,
        limits: Limits,
        cache: Path,
        *,
        environment: Mapping[str, str] | None = None,
        triton: TritonParts | None = None,
        stopped: Callable[[], bool] | None = None,
        waiting: Callable[[], None] | None = None,
    ) -> None:
        self._problem = problem
        self._stopped, self._waiting = stopped, waiting
        self._turn = threading.Lock()  # workers are prepared in a thread
        self._settings = settings
        self._rng = random.Random()
        self._scratch: Path | None = None
        self._held = ExitStack()  # the scratch folder, until `close`
        self._bundle: Path | None = None
        visible = {"CUDA_VISIBLE_DEVICES": problem.gpu or ""}
        self._oracle = OracleProcess(visible)
        self._environment = {**(environment or {}), **visible}
        try:
            self._scratch = self._held.enter_context(private_folder(cache, "harness-"))
            self._triton = triton
            self._native: Native = _native(problem, cache, triton)
            opened = self._oracle.ask(
                wire.Open(
                    problem=_absolute(problem),
                    settings=settings,
                    limits=limits,
                    runner=self._native.runner,
                    empty=self._native.empty,
                    flush=self._native.flush,
                    environment=self._environment,
                    arch=triton.arch if triton else "",
                    cache=triton.cache.absolute() if triton else None,
                )
            )
            if not isinstance(opened, wire.Opened):
                raise HarnessFault("the oracle gave no proper answer to `open`")
            self._layers = opened.layers
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Harness:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def layers(self) -> Mapping[str, bool]:
        """Which walls stand around workers (network, ipc, pid, mount, user, seccomp, sealed) and builds (build_…)."""
        return {**self._layers, **walls.layers()}

    def check_task(self, baseline: Path) -> TaskCheck:
        """Test the task itself and learn the baseline's errors. Call it before anything is evaluated.

        Raises:
            TaskError: the reference, the tolerance or the baseline is unfit.
        """
        reply = self._time(wire.CheckTask(baseline=baseline.absolute()))
        if not isinstance(reply, wire.Checked):
            raise HarnessFault("the oracle gave no proper answer to `check_task`")
        return reply.check

    def evaluate(self, artifact: Path) -> Evaluation:
        """Verify a kernel on every case and distribution, then time it, every timed call checked.

        Times in doubt are taken again, twice: a busy machine is not held against a kernel, a forged clock stays one.
        """
        return self._believed(artifact, self._evaluate_alone(artifact))

    def evaluate_each(self, artifacts: Sequence[Path]) -> Iterator[Evaluation]:
        """Evaluate kernels, in order: on the host one by one as asked for, on a GPU all together."""
        groups = [[artifact] for artifact in artifacts] if self._problem.gpu is None else [list(artifacts)]
        for group in groups:
            if len(group) == 1:
                yield self.evaluate(group[0])
                continue
            try:
                found = self._evaluate(group)
            except (HarnessFault, TaskError):
                if not self._oracle.alive():
                    raise
                # Whichever it was that broke or took the memory, the others are not to suffer for it.
                found = [self._evaluate_alone(artifact) for artifact in group]
            for artifact, evaluation in zip(group, found, strict=True):
                yield self._believed(artifact, evaluation)

    def _believed(self, artifact: Path, found: Evaluation) -> Evaluation:
        checks = tuple(c for c in found.checks if c.distribution != "timed")
        for _ in range(_DOUBTS - 1):
            if found.verdict != "suspect":
                break
            found = self._evaluate_alone(artifact, again=True)
            found = replace(found, checks=(*checks, *found.checks))
        return found

    def _evaluate_alone(self, artifact: Path, *, again: bool = False) -> Evaluation:
        try:
            return self._evaluate([artifact], again=again)[0]
        except HarnessFault as fault:
            if not self._oracle.alive():
                raise
            return Evaluation("error", str(fault), (), None)

    def _evaluate(self, artifacts: Sequence[Path], *, again: bool = False) -> list[Evaluation]:
        paths = tuple(artifact.absolute() for artifact in artifacts)
        reply = self._time(wire.Evaluate(artifacts=paths, again=again))
        if not isinstance(reply, wire.Evaluations) or len(reply.found) != len(paths):
            raise HarnessFault("the oracle gave no proper answer to `evaluate`")
        verified, dims = self._problem.reference is not None, self._problem.timed.dims
        return [verdict.evaluation(found, self._settings, verified=verified, timed=dims) for found in reply.found]

    def compare(self, a: Path, b: Path) -> Comparison | Rejected:
        """Interleave two kernels over fresh pairs of workers. `speedup` is how many times as fast b is as a."""
        return self.compare_all([(a, b)])[0]

    def compare_all(self, pairs: Sequence[tuple[Path, Path]]) -> list[Comparison | Rejected]:
        """Interleave all kernels of these pairs over fresh sets of workers, one worker for each kernel.

        A failure of either kernel is a `Rejected` whose reason names it, a or b. What may pass (clocks in doubt, a
        worker that does not start) is tried again, twice.
        """
        found: dict[int, Comparison | Rejected] = {}
        open_pairs = list(range(len(pairs)))
        for left in reversed(range(_DOUBTS)):
            try:
                outcomes = self._compare([pairs[i] for i in open_pairs], again=left < _DOUBTS - 1)
            except HarnessFault:
                if not self._oracle.alive() or (left == 0 and len(open_pairs) == 1):
                    raise
                if left > 0:
                    continue
                outcomes = [self._compare_alone(*pairs[i]) for i in open_pairs]
            found |= dict(zip(open_pairs, outcomes, strict=True))
            open_pairs = [i for i in open_pairs if _is_doubtful(found[i])]
            if not open_pairs:
                break
        return [found[i] for i in range(len(pairs))]

    def _compare_alone(self, a: Path, b: Path) -> Comparison | Rejected:
        """Whichever kernel's worker does not start, the others' comparisons are not to suffer for it."""
        try:
            return self._compare([(a, b)], again=True)[0]
        except HarnessFault as fault:
            if not self._oracle.alive():
                raise
            return Rejected("time", str(fault))

    def _compare(self, pairs: Sequence[tuple[Path, Path]], *, again: bool) -> list[Comparison | Rejected]:
        kernels: list[Path] = []
        places = []
        for a, b in pairs:
            first = _place(a.absolute(), kernels)
            places.append((first, _place(b.absolute(), kernels, other_than=first)))
        reply = self._time(wire.Compare(kernels=tuple(kernels), pairs=tuple(places), again=again))
        if not isinstance(reply, wire.Interleaved) or len(reply.found) != len(pairs):
            raise HarnessFault("the oracle gave no proper answer to `compare`")
        return [verdict.comparison(compared, self._rng) for compared in reply.found]

    def prepare(self, workers: int) -> None:
        """Have workers for the next measurement open the GPU, which takes longer than all else they do to start.

        On the host, and for Triton, none does. Safe beside everything but a measurement, which waits for its end.
        """
        if self._problem.gpu is not None and self._triton is None:
            self._time(wire.Prepare(workers=workers))

    def set_floor(self, floor_ms: float | None) -> None:
        """From now on a median under `floor_ms` is `suspect`; None lifts the floor."""
        self._settings = replace(self._settings, floor_ms=floor_ms)

    def aa_spread(self, artifact: Path) -> float | Rejected:
        """How far from 1 the gain of a kernel over its own byte-identical copy can look, as a fraction (0.01 is 1%).

        No smaller gain can be claimed here. Rejected at `verify` where the kernel fails, at `time` where the clocks
        cannot be believed.
        """
        assert self._scratch is not None
        copy = self._scratch / f"copy-{artifact.name}"
        if artifact.is_dir():  # a Triton build
            shutil.copytree(artifact, copy)
            found = self.compare(artifact, copy)
            shutil.rmtree(copy)
        else:
            shutil.copyfile(artifact, copy)
            found = self.compare(artifact, copy)
            copy.unlink()
        if isinstance(found, Rejected):
            return found
        return math.expm1(max(abs(math.log(found.low)), abs(math.log(found.high))))

    def alone(self) -> AbstractContextManager[None]:
        """While this lasts no other run measures on the device."""
        return exclusive_timing(stopped=self._stopped, waiting=self._waiting, gpu=self._problem.gpu)

    def _time(self, request: wire.Request) -> wire.Reply:
        """A request that measures, or disturbs what does."""
        with self._turn, self.alone():
            return self._oracle.ask(request)

    def _ask(self, request: wire.Request) -> wire.Reply:
        with self._turn:
            return self._oracle.ask(request)

    def solo_command(self, artifact: Path) -> list[str]:
        """A command that makes one call of `solve` on staged inputs, behind a worker's walls. Lives as long as this.

        What counts from outside (perf) may start it; a tool that the kernel runs in goes in by `walled.under_tool`.
        """
        return walled.solo_command(self._native.runner, self._staged(), artifact.absolute())

    def profiled_command(self, artifact: Path, staged: Path | None = None) -> list[str]:
        """A command that makes one call of `solve` on a GPU between a profiler's marks. Lives as long as this.

        It runs in `profiled_environment`. Its data are inputs alone, never an answer: of the timed case, or `staged`.
        """
        assert self._problem.gpu is not None
        staged = staged or self._staged()
        if self._triton is not None:
            return triton_launcher.profiled_command(
                self._native.runner, self._triton.arch, staged, self._problem.gpu, artifact.absolute()
            )
        return [str(self._native.runner), "--profiled", str(staged), str(artifact.absolute()), self._problem.gpu]

    def profiled_environment(self) -> Mapping[str, str]:
        """What a profiled command needs of the environment."""
        if self._triton is None:
            return self._environment
        return {**triton_launcher.profiled_environment(self._triton.cache), **self._environment}

    def tune(self, artifact: Path) -> Mapping[str, Mapping[str, int]] | Rejected:
        """Let a Triton kernel's autotuners choose with real data, for every case, before anything is timed."""
        reply = self._time(wire.Tune(artifact=artifact.absolute()))
        if not isinstance(reply, wire.Tuned):
            raise HarnessFault("the oracle gave no proper answer to `tune`")
        return Rejected("load", f"autotuning: {reply.failure}") if reply.failure is not None else reply.choices

    def _staged(self) -> Path:
        assert self._scratch is not None
        if self._bundle is None:
            bundle = self._scratch / "call.bin"
            if not isinstance(self._ask(wire.Stage(target=bundle)), wire.Staged):
                raise HarnessFault("the oracle gave no proper answer to `stage`")
            self._bundle = bundle
        return self._bundle

    def stage_apart(self, check: int | None) -> Path:
        """Inputs of one call, each tensor to get memory of its own, as a sanitizer needs it. Lives as long as this.

        Args:
            check: number of one of the task's extra cases; None is the timed one.
        """
        assert self._scratch is not None
        target = self._scratch / f"apart-{'timed' if check is None else check}.bin"
        if not target.exists() and not isinstance(
            self._ask(wire.Stage(target=target, check=check, apart=True)), wire.Staged
        ):
            raise HarnessFault("the oracle gave no proper answer to `stage`")
        return target

    @property
    def empty(self) -> Path:
        """A `solve` that does nothing, built for the task's signature."""
        return self._native.empty

    def empty_command(self) -> list[str]:
        """The same for a `solve` that does nothing: what is to be taken off."""
        return self.solo_command(self._native.empty)

    def close(self) -> None:
        """End the oracle, its workers with it, and remove the staged data. Safe to call twice."""
        self._oracle.close()
        self._held.close()
        self._scratch = None


def _place(kernel: Path, kernels: list[Path], other_than: int | None = None) -> int:
    """Where a kernel stands in the list, added if need be. One that is held against itself stands there twice."""
    for place, known in enumerate(kernels):
        if known == kernel and place != other_than:
            return place
    kernels.append(kernel)
    return len(kernels) - 1


def _is_doubtful(outcome: Comparison | Rejected) -> bool:
    return isinstance(outcome, Rejected) and outcome.stage == "time"


def _native(problem: Problem, cache: Path, triton: TritonParts | None) -> Native:
    if triton is None:
        return build_native(problem.signature, cache, gpu=problem.gpu is not None)
    return Native(runner=triton_launcher.build_library(triton.cache), empty=triton.empty.absolute(), flush=None)


def _absolute(problem: Problem) -> Problem:
    return replace(problem, reference=problem.reference.absolute() if problem.reference else None)
