"""The oracle process: holds the reference, the secret seeds and all comparisons.

It answers the controller's requests, one JSON line each, and starts the workers. It never unpickles anything.
"""

from __future__ import annotations

import ctypes
import os
import random
import secrets
import signal
import struct
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from backends.types import ToolchainError
from profiling.harness import wire
from profiling.harness.arena import RandomBytes, memory_available, out_of_memory
from profiling.harness.bench import Bench, Rig, worker_cores
from profiling.harness.evaluation import Evaluator
from profiling.harness.inputs import Draw, Pools
from profiling.harness.interleaving import Interleaver
from profiling.harness.launcher import Launcher, NativeLauncher
from profiling.harness.memory import Device, Gpu, Host
from profiling.harness.reference import Reference
from profiling.harness.task_check import check_task
from profiling.harness.timing import Timer
from profiling.harness.triton_launcher import TritonLauncher, Tuning
from profiling.harness.verify import Job, Verifier, key
from profiling.harness.worker import CandidateFailure
from profiling.types import HarnessFault, MeasureSettings, TaskError

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_PREPARE_S = 90.0
_REFERENCE_LIMITS = 4.0  # a reference may take this many times as long as one call of a kernel


class Oracle:
    """Serves one task. The first request must be `open`."""

    def __init__(self, say: TextIO) -> None:
        self._say = say
        self._layers: dict[str, bool] = {}

    def phase(self, name: str, limit_s: float) -> None:
        """Tell the controller how long the next thing may take."""
        self.reply(wire.Phase(name=name, limit_s=limit_s))

    def reply(self, message: wire.Reply) -> None:
        """Send one line."""
        self._say.write(message.model_dump_json() + "\n")
        self._say.flush()

    def answer(self, line: str) -> None:
        """Fulfil one request, or say why not."""
        try:
            self.reply(self._fulfil(wire.REQUEST.validate_json(line)))
        except TaskError as error:
            self.reply(wire.Failed(fault="task", message=str(error)))
        except ToolchainError as error:
            self.reply(wire.Failed(fault="machine", message=str(error)))
        except (HarnessFault, OSError, CandidateFailure) as error:
            self.reply(wire.Failed(fault="harness", message=str(error)))
        except Exception as error:
            traceback.print_exc()
            text = str(error).partition("\n")[0]
            if out_of_memory(error):
                self.reply(wire.Failed(fault="task", message=f"out of memory: use smaller dims ({text})"))
            else:
                self.reply(wire.Failed(fault="harness", message=f"{type(error).__name__}: {text}"))

    def _fulfil(self, request: wire.Request) -> wire.Reply:
        match request:
            case wire.Open():
                return self._open(request)
            case wire.CheckTask():
                return wire.Checked(check=check_task(self._verifier, request.baseline, self._settings))
            case wire.Evaluate():
                if request.again:
                    self._timer.forget_empty()
                evaluator = Evaluator(self._verifier, self._timer)
                return wire.Evaluations(found=tuple(evaluator.evaluate(request.artifacts, verify=not request.again)))
            case wire.Compare():
                if request.again:
                    self._timer.forget_empty()
                return wire.Interleaved(
                    found=Interleaver(self._timer).compare(request.kernels, request.pairs, self._rng)
                )
            case wire.Tune():
                return self._tune(request.artifact)
            case wire.Prepare():
                return self._prepare(request.workers)
            case wire.Stage():
                return self._stage(request)

    def _open(self, request: wire.Open) -> wire.Reply:
        settings: MeasureSettings = request.settings
        seeded = random.Random(settings.seed) if settings.seed is not None else random.Random(secrets.randbits(256))
        self._settings, self._rng = settings, seeded
        gpu = request.problem.gpu
        device = Gpu(gpu) if gpu is not None else _host(request)
        reference = None
        if request.problem.reference is not None:
            limit_s = _REFERENCE_LIMITS * request.limits.call_s
            reference = Reference(request.problem.reference, self.phase, limit_s)
        tolerance = None
        if reference is not None:
            tolerance = replace(
                request.problem.tolerance or reference.tolerance(),
                baseline_factor=request.problem.baseline_factor,
                eps_factor=request.problem.eps_factor,
            )
        rig = Rig(
            problem=request.problem,
            reference=reference,
            tolerance=tolerance,
            empty=request.empty,
            device=device,
            launcher=_launcher(request),
            limits=request.limits,
            cores=worker_cores(settings.threads, device),
            noise=RandomBytes(seeded),
            pools=Pools(seeded),
            seed=lambda: seeded.getrandbits(63),
            phase=self.phase,
        )
        self._rig = rig
        self._verifier = Verifier(rig)
        self._timer = Timer(rig, settings, self._verifier)
        with Bench(rig, rig.empty, rig.problem.timed, slots=1) as bench:
            return wire.Opened(layers=dict(bench.layers))

    def _prepare(self, workers: int) -> wire.Reply:
        self.phase("workers", _PREPARE_S)
        self._rig.launcher.prepare(self._rig.device.room_for(workers), self._rig.cores)
        return wire.Prepared()

    def _tune(self, artifact: Path) -> wire.Reply:
        launcher = self._rig.launcher
        assert isinstance(launcher, TritonLauncher)
        tuning = Tuning(launcher)
        cases = (self._rig.problem.timed, *self._rig.problem.checks)
        jobs: list[Job] = [(c, "declared") for c in cases if key(c, "declared") not in self._verifier.dropped]
        try:
            records, failure = Verifier(replace(self._rig, launcher=tuning)).run(artifact, jobs)
            if failure is not None and jobs[len(records)][0].secret and not self._verifier.baseline:
                failure = None  # the baseline's own: its check at this shape, which comes next, fails and is left out
            return wire.Tuned(choices={k: dict(v) for k, v in tuning.chosen().items()}, failure=failure)
        finally:
            tuning.close()

    def _stage(self, request: wire.Stage) -> wire.Reply:
        rig = self._rig
        case = rig.problem.timed if request.check is None else rig.problem.checks[request.check]
        with Bench(rig, rig.empty, case, slots=1) as bench:
            inputs = rig.inputs(case).make(Draw(rig.seed(), "declared"))
            setup, image = bench.bundle(inputs, apart=request.apart)
        request.target.write_bytes(struct.pack("=Q", len(setup)) + setup + image)
        return wire.Staged()


def _host(request: wire.Open) -> Device:
    if request.flush is None:
        raise HarnessFault("no cache flush for the host")
    return Host(request.flush, memory_available)


def _launcher(request: wire.Open) -> Launcher:
    if request.problem.backend != "triton":
        return NativeLauncher(request.runner, request.environment, request.problem.gpu)
    if request.cache is None:
        raise HarnessFault("no cache for Triton workers")
    return TritonLauncher(request.runner, request.arch, request.cache, request.environment)


def main() -> None:
    """Serve requests from standard input until it ends."""
    parent = os.getppid()
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(_PR_SET_DUMPABLE, 0)
    if os.getppid() != parent:
        return
    # A reference may print: what it prints must not be taken for a reply.
    hear, say = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    oracle = Oracle(say)
    for line in hear:
        oracle.answer(line)
