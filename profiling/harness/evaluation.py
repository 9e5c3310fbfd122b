"""Kernels verified, then timed. On a GPU their workers start first, side by side: that takes longest, and no time of
a kernel is taken meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from profiling.findings import CaseCheck
from profiling.harness.bench import Bench
from profiling.harness.timing import Timer
from profiling.harness.verify import Verifier, described
from profiling.harness.wire import Evaluated
from profiling.harness.worker import CandidateFailure


@dataclass(slots=True)
class _Candidate:
    """A kernel on its way: its workers where they were started ahead, and its checks."""

    artifact: Path
    checking: Bench | None = None
    timing: Bench | None = None
    checks: tuple[CaseCheck, ...] = ()

    @property
    def right(self) -> bool:
        return all(check.passed for check in self.checks)

    def close(self) -> None:
        for worker in (self.checking, self.timing):
            if worker is not None:
                worker.close()


@dataclass(slots=True)
class Evaluator:
    """Evaluates kernels with a verifier and a timer."""

    verifier: Verifier
    timer: Timer

    def evaluate(self, artifacts: Sequence[Path], *, verify: bool) -> list[Evaluated]:
        """Evidence on each kernel, in order. What is wrong is not timed; without `verify` all are taken for right."""
        candidates = [_Candidate(artifact) for artifact in artifacts]
        try:
            if verify:
                self._verify(candidates)
            return [self._timed(candidate) for candidate in candidates]
        finally:
            for candidate in candidates:
                candidate.close()

    def _verify(self, candidates: Sequence[_Candidate]) -> None:
        problem, device = self.timer.rig.problem, self.timer.rig.device
        cases = (*problem.checks, problem.timed)
        for candidate in candidates if device.one_by_one else ():
            if device.has_room_for_more:
                candidate.checking = self.verifier.start(candidate.artifact, cases)
                candidate.timing = self.timer.start(candidate.artifact)
        for candidate in candidates:
            candidate.checks = tuple(self.verifier.verify(candidate.artifact, cases, candidate.checking))
            if not candidate.right:
                candidate.close()
        for candidate in candidates:
            if candidate.right and candidate.timing is not None:
                self._wait(candidate, candidate.timing)  # nothing may go on beside what is timed

    def _wait(self, candidate: _Candidate, worker: Bench) -> None:
        try:
            worker.ready()
        except CandidateFailure as error:
            dims = self.timer.rig.problem.timed.dims
            candidate.checks += (CaseCheck(dims, "timed", False, described(error), None, None),)
            worker.close()

    def _timed(self, candidate: _Candidate) -> Evaluated:
        if not candidate.right:
            return Evaluated(checks=candidate.checks, times=None, empty=None)
        times, empty, check = self.timer.measure(candidate.artifact, candidate.timing)
        return Evaluated(checks=(*candidate.checks, check), times=times, empty=empty)
