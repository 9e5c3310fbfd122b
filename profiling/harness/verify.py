"""Whether a kernel is right: on every case and distribution, and in every timed call."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from profiling.harness.bench import Bench, Record, Rig
from profiling.harness.inputs import CHECKED, Distribution, Draw
from profiling.harness.judge import Exactness, Judgement, judge
from profiling.harness.worker import CandidateFailure
from profiling.types import Case, CaseCheck, TaskError

Key = tuple[tuple[tuple[str, int], ...], Distribution]


def key(case: Case, distribution: Distribution) -> Key:
    """What the baseline's errors are remembered by."""
    return tuple(sorted(case.dims.items())), distribution


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
        """The reference's outputs. Raises TaskError."""
        if self.rig.reference is None:
            raise TaskError("the task has no reference")
        return self.rig.reference.compute(case, self.rig.inputs(case).make(draw))

    def verify(self, artifact: Path, case: Case, distributions: Sequence[Distribution] = CHECKED) -> list[CaseCheck]:
        """Run one call per distribution in one worker, then judge them; a crash ends the case."""
        wanted = [d for d in distributions if key(case, d) not in self.dropped]
        if not wanted:
            return []
        records, failure = self.run(artifact, case, wanted)
        checks = [_check(case, r.draw.distribution, self.judgement(case, r)) for r in records]
        if failure is not None:
            checks.append(CaseCheck(case.dims, wanted[len(records)], False, failure, None, None))
        return checks

    def run(self, artifact: Path, case: Case, wanted: Sequence[Distribution]) -> tuple[list[Record], str | None]:
        """One call per entry of `wanted`, in one worker: those that came back, and why the next did not."""
        records: list[Record] = []
        maker = self.rig.inputs(case)
        try:
            with Bench(self.rig, artifact, case, slots=1) as bench:
                for distribution in wanted:
                    draw = Draw(self.rig.seed(), distribution)
                    records.extend(bench.frame([(draw, maker.make(draw))], ["a check"], cold=False).records)
        except CandidateFailure as error:
            return records, described(error)
        return records, None

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
    return CaseCheck(case.dims, distribution, result.reason is None, result.reason, *_errors(result))


def _errors(result: Judgement) -> tuple[float | None, float | None]:
    return result.max_abs_error, result.relative_norm_error


def _larger(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else max(a, b)
