"""Whether a kernel is right: on every case and distribution, and in every timed call."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from profiling.findings import CaseCheck
from profiling.harness.bench import Bench, Record, Rig
from profiling.harness.inputs import CHECKED, Distribution, Draw
from profiling.harness.judge import Exactness, Judgement, judge
from profiling.harness.worker import CandidateFailure
from profiling.types import Case, TaskError

Job = tuple[Case, Distribution]
Key = tuple[tuple[tuple[str, int], ...], Distribution]


def key(case: Case, distribution: Distribution) -> Key:
    """What the baseline's errors are remembered by."""
    return tuple(sorted(case.dims.items())), distribution


def distributions(case: Case) -> Sequence[Distribution]:
    """What a kernel is given at a case: of secret ones there are several, and each is one call."""
    return ("declared",) if case.secret else CHECKED


@dataclass(slots=True)
class Verifier:
    """Judges calls against the reference, once their worker is dead.

    Attributes:
        rig: what it works with.
        baseline: how exact it is, by case and distribution, then by output.
        dropped: cases and distributions that the baseline itself fails: nothing else is asked to pass them.
        judge_s: what judging one timed call takes, as measured last.
    """

    rig: Rig
    baseline: dict[Key, dict[str, Exactness]] = field(default_factory=dict)
    dropped: set[Key] = field(default_factory=set)
    judge_s: float = 0.0

    def expected(self, case: Case, draw: Draw) -> dict[str, torch.Tensor]:
        """The reference's outputs, and the inputs that indices among them point into. Raises TaskError."""
        if self.rig.reference is None:
            raise TaskError("the task has no reference")
        inputs = self.rig.inputs(case).make(draw)
        outputs = self.rig.reference.compute(case, inputs)
        return {**{t.ties: inputs[t.ties] for t in case.tensors if t.ties in inputs}, **outputs}

    def start(self, artifact: Path, cases: Sequence[Case]) -> Bench | None:
        """A worker for `verify`, which starts while something else is looked at; None where there is nothing to do."""
        jobs = self._jobs(cases)
        return self._worker(artifact, jobs) if jobs else None

    def _jobs(self, cases: Sequence[Case]) -> list[Job]:
        return [(case, d) for case in cases for d in distributions(case) if key(case, d) not in self.dropped]

    def verify(self, artifact: Path, cases: Sequence[Case], started: Bench | None = None) -> list[CaseCheck]:
        """One call per case and distribution, each judged once its worker is dead; a crash ends it all.

        Args:
            artifact: the kernel.
            cases: where it must be right.
            started: its worker, where there is one already; it is ended.
        """
        jobs = self._jobs(cases)
        checks: list[CaseCheck] = []
        while jobs:
            records, failure = self.run(artifact, jobs, started)
            started = None
            for (case, distribution), record in zip(jobs, records, strict=False):
                checks.append(_check(case, distribution, self.judgement(case, record)))
            if failure is not None:
                case, distribution = jobs[len(records)]
                checks.append(_check(case, distribution, Judgement(failure, None, None)))
                break
            jobs = jobs[len(records) :]
        return checks

    def run(self, artifact: Path, jobs: Sequence[Job], started: Bench | None = None) -> tuple[list[Record], str | None]:
        """Calls in one worker, as many of `jobs` as it may make: those that came back, and why the next did not.

        A worker on the host has one case; on a GPU it is rebound. It also ends when enough outputs wait to be judged.
        """
        device = self.rig.device
        first, mine = jobs[0][0], self._share(jobs)
        records: list[Record] = []
        kept_bytes = 0
        try:
            with started or self._worker(artifact, jobs) as bench:
                bound = first
                for case, distribution in mine:
                    if case is not bound:
                        bench.rebind(case)
                        bound = case
                    draw = Draw(self.rig.seed(), distribution)
                    inputs = self.rig.inputs(case).make(draw)
                    records.extend(bench.frame([(draw, inputs)], ["a check"], cold=False).records)
                    kept_bytes += sum(t.nbytes for t in records[-1].outputs.values())
                    if kept_bytes > device.kept_bytes:
                        break
        except CandidateFailure as error:
            return records, described(error)
        return records, None

    def _worker(self, artifact: Path, jobs: Sequence[Job]) -> Bench:
        return Bench(self.rig, artifact, jobs[0][0], slots=1, then=[case for case, _ in self._share(jobs)])

    def _share(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Those that one worker can do."""
        return [job for job in jobs if self.rig.device.one_by_one or job[0] is jobs[0][0]]

    def judgement(self, case: Case, record: Record, expected: dict[str, torch.Tensor] | None = None) -> Judgement:
        """Judge one call. Without a reference there is nothing to find wrong.

        Args:
            case: the call's.
            record: the call.
            expected: the reference's outputs, where the caller has them already.
        """
        if self.rig.tolerance is None:
            return Judgement(None, None, None)
        start = time.perf_counter()
        if expected is None:
            expected = self.expected(case, record.draw)
        bound = self.baseline.get(key(case, record.draw.distribution))
        result = judge(case, record.outputs, expected, self.rig.tolerance, bound)
        self.judge_s = time.perf_counter() - start
        return result

    def judge_timed(self, records: Sequence[Record]) -> CaseCheck:
        """Judge the calls of the timed case up to the first wrong one, into one check named `timed`."""
        case = self.rig.problem.timed
        worst = Judgement(None, 0.0, 0.0) if self.rig.tolerance else Judgement(None, None, None)
        for record in records:
            result = self.judgement(case, record)
            if result.reason is not None:
                return _check(case, "timed", Judgement(f"{record.where}: {result.reason}", *_errors(result)))
            worst = Judgement(
                None,
                _larger(worst.max_abs_error, result.max_abs_error),
                _larger(worst.relative_norm_error, result.relative_norm_error),
            )
        return _check(case, "timed", worst)


def described(error: CandidateFailure) -> str:
    """A failure in one line, with the last line that the candidate printed."""
    lines = [line for line in error.evidence.splitlines() if line.strip()]
    if not lines:
        return str(error)
    last = "".join(c if c.isprintable() else "?" for c in lines[-1].strip()[:200])
    return f"{error} (it printed: {last})"


def _check(case: Case, distribution: str, result: Judgement) -> CaseCheck:
    passed = result.reason is None
    return CaseCheck(case.dims, distribution, passed, result.reason, *_errors(result), secret=case.secret)


def _errors(result: Judgement) -> tuple[float | None, float | None]:
    return result.max_abs_error, result.relative_norm_error


def _larger(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else max(a, b)
