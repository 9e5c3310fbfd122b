"""What everything above measures with: starts the oracle, asks it for evidence, derives the verdict."""

from __future__ import annotations

import math
import queue
import random
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO

from pydantic import ValidationError

from backends.build_cache import private_folder
from backends.process import clean_environment, kill_group
from backends.types import Rejected, ToolchainError
from profiling.exclusive import exclusive_timing
from profiling.harness import triton_launcher, verdict, walled, wire
from profiling.harness.runner_build import Native, build_native
from profiling.types import (
    Comparison,
    Evaluation,
    HarnessFault,
    Limits,
    MeasureSettings,
    Problem,
    TaskCheck,
    TaskError,
)

_START_S = 120.0
_DOUBTS = 3  # a kernel is `suspect` when this many measurements in a row are
_ORACLE_ENVIRONMENT = {
    "PYTHONDONTWRITEBYTECODE": "1",  # a reference may lie in a run folder
    "OMP_WAIT_POLICY": "passive",  # threads that wait for work must not run beside a worker
    # Tensors come and go all the time: memory that is given back to the system costs page faults again.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}
_FAULTS: Mapping[str, type[Exception]] = {"task": TaskError, "machine": ToolchainError, "harness": HarnessFault}
_ROOT = Path(__file__).parents[2]
# Not `-m`: it puts the working folder first on the path, and a user's `torch.py` there must not be taken for ours.
_SERVE = "import sys; sys.path[:] = filter(None, sys.path); from profiling.harness.oracle import main; main()"


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
        self._settings = settings
        self._rng = random.Random()
        self._scratch: Path | None = None
        self._held = ExitStack()  # the scratch folder, until `close`
        self._bundle: Path | None = None
        visible = {"CUDA_VISIBLE_DEVICES": problem.gpu or ""}
        self._oracle = _OracleProcess(visible)
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
        """Which walls stand around workers: network, ipc, pid, mount, user, seccomp."""
        return self._layers

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
        found = self._evaluate(artifact, verify=True)
        checks = tuple(c for c in found.checks if c.distribution != "timed")
        for _ in range(_DOUBTS - 1):
            if found.verdict != "suspect":
                return found
            found = self._evaluate(artifact, verify=False)
            found = replace(found, checks=(*checks, *found.checks))
        return found

    def _evaluate(self, artifact: Path, *, verify: bool) -> Evaluation:
        try:
            reply = self._time(wire.Evaluate(artifact=artifact.absolute(), verify=verify))
        except HarnessFault as fault:
            if not self._oracle.alive():
                raise
            return Evaluation("error", str(fault), (), None)
        if not isinstance(reply, wire.Evaluated):
            raise HarnessFault("the oracle gave no proper answer to `evaluate`")
        verified = self._problem.reference is not None
        return verdict.evaluation(reply, self._settings, verified=verified, timed=self._problem.timed.dims)

    def compare(self, a: Path, b: Path) -> Comparison | Rejected:
        """Interleave two kernels over fresh pairs of workers. `speedup` is how many times as fast b is as a.

        A failure of either is a `Rejected` whose reason names it. What may pass (clocks in doubt, a worker that does
        not start) is tried again, twice.
        """
        for left in reversed(range(_DOUBTS)):
            try:
                reply = self._time(wire.Compare(a=a.absolute(), b=b.absolute()))
            except HarnessFault:
                if left == 0 or not self._oracle.alive():
                    raise
                continue
            if not isinstance(reply, wire.Compared):
                raise HarnessFault("the oracle gave no proper answer to `compare`")
            found = verdict.comparison(reply, self._rng)
            if isinstance(found, Comparison) or found.stage != "time":
                break
        return found

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
        """A request that measures."""
        with self.alone():
            return self._oracle.ask(request)

    def solo_command(self, artifact: Path) -> list[str]:
        """A command that makes one call of `solve` on staged inputs, behind a worker's walls. Lives as long as this.

        What counts from outside (perf) may start it; a tool that the kernel runs in goes in by `walled.under_tool`.
        """
        return walled.solo_command(self._native.runner, self._staged(), artifact.absolute())

    def profiled_command(self, artifact: Path) -> list[str]:
        """A command that makes one call of `solve` on a GPU between a profiler's marks. Lives as long as this.

        It runs in `profiled_environment`. Its data are inputs alone, never an answer.
        """
        assert self._problem.gpu is not None
        if self._triton is not None:
            return triton_launcher.profiled_command(
                self._native.runner, self._triton.arch, self._staged(), self._problem.gpu, artifact.absolute()
            )
        runner = str(self._native.runner)
        return [runner, "--profiled", str(self._staged()), str(artifact.absolute()), self._problem.gpu]

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
            if not isinstance(self._oracle.ask(wire.Stage(target=bundle)), wire.Staged):
                raise HarnessFault("the oracle gave no proper answer to `stage`")
            self._bundle = bundle
        return self._bundle

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


def _native(problem: Problem, cache: Path, triton: TritonParts | None) -> Native:
    if triton is None:
        return build_native(problem.signature, cache, gpu=problem.gpu is not None)
    return Native(runner=triton_launcher.build_library(triton.cache), empty=triton.empty.absolute(), flush=None)


def _absolute(problem: Problem) -> Problem:
    return replace(problem, reference=problem.reference.absolute() if problem.reference else None)


class _OracleProcess:
    """The oracle behind its pipes."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment({"PYTHONPATH": str(_ROOT), **_ORACLE_ENVIRONMENT, **environment}),
            start_new_session=True,
        )
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._errors: deque[bytes] = deque(maxlen=40)
        self._readers = [
            threading.Thread(target=self._read_replies, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_errors, args=(self._process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_replies(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._lines.put(line)
        self._lines.put(b"")

    def _read_errors(self, stream: IO[bytes]) -> None:
        with stream:
            while line := stream.readline(4096):
                self._errors.append(line)

    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def ask(self, request: wire.Request) -> wire.Reply:
        """One request, one reply. Raises TaskError or HarnessFault."""
        stdin = self._process.stdin
        assert stdin is not None
        phase = wire.Phase(name="start", limit_s=_START_S)
        try:
            stdin.write(request.model_dump_json().encode() + b"\n")
            stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise HarnessFault(f"the oracle is gone: {self._last_words()}") from error
        while True:
            try:
                line = self._lines.get(timeout=phase.limit_s)
            except queue.Empty:
                self.close()
                raise self._overdue(phase) from None
            reply = self._parse(line, phase)
            if isinstance(reply, wire.Phase):
                phase = reply
            elif isinstance(reply, wire.Failed):
                raise _FAULTS[reply.fault](reply.message)
            else:
                return reply

    def _parse(self, line: bytes, phase: wire.Phase) -> wire.Reply:
        if not line:
            self._process.wait()
            how = f"ended with status {self._process.returncode} {self._last_words()}".rstrip()
            self.close()
            if phase.name == "reference":
                raise TaskError(f"the reference took its process down: it {how}")
            raise HarnessFault(f"the oracle {how}")
        try:
            return wire.REPLY.validate_json(line)
        except ValidationError as error:
            self.close()
            raise HarnessFault(f"the oracle sent what is no reply: {line[:200]!r}") from error

    def _overdue(self, phase: wire.Phase) -> TaskError | HarnessFault:
        if phase.name == "reference":
            return TaskError(
                f"the reference gave no answer within {phase.limit_s:.0f} s: it hangs or needs smaller dims"
            )
        return HarnessFault(f"the oracle gave no answer within {phase.limit_s:.0f} s ({phase.name})")

    def _last_words(self) -> str:
        for reader in self._readers[1:]:
            reader.join(2.0)
        lines = [line.decode(errors="replace").strip() for line in self._errors]
        return next((f"({line})" for line in reversed(lines) if line), "")

    def close(self) -> None:
        """Kill it: its workers end with it."""
        if self._process.poll() is None:
            kill_group(self._process.pid)
        self._process.wait()
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                pass
        for reader in self._readers:
            reader.join(2.0)
