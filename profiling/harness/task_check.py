"""The task's own test: a task that wrong answers pass, or that its baseline fails, is unfit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from profiling.findings import TaskCheck
from profiling.harness.arena import Layout, torch_dtype
from profiling.harness.bench import has_room
from profiling.harness.inputs import Distribution, Draw
from profiling.harness.judge import Exactness, Judgement, judge, relative_error
from profiling.harness.verify import Key, Verifier, distributions, key
from profiling.types import Case, MeasureSettings, TaskError, Tensor

# The error of a small output is a matter of luck: it takes several calls to learn how large it may be.
_MANY_ELEMENTS, _FEW, _SEVERAL = 1024, 2, 8
# What one large value does depends on its size, its sign and on where it lies.
_EXTREME: tuple[Distribution, ...] = ("spike", "heavy-tailed")
_CHEAP_ELEMENTS, _MANY_DRAWS = 1 << 16, 16


def check_task(verifier: Verifier, baseline: Path, settings: MeasureSettings) -> TaskCheck:
    """Test the reference, the tolerance and the baseline; remember the baseline's errors.

    Raises:
        TaskError: what is unfit, and what to do.
    """
    rig = verifier.rig
    case = rig.problem.timed
    if not any(t.role != "in" and t.elements for t in case.tensors):
        raise TaskError("the kernel has no output, or only empty ones: nothing could be checked")
    verifier.baseline.clear()
    verifier.dropped.clear()
    rejected: tuple[str, ...] = ()
    reference_ms = flops = moved = None
    if rig.reference is not None:
        rejected = _try_wrong_answers(verifier, case)
        flops, moved = rig.reference.work("flops", case), rig.reference.work("bytes", case)
        inputs = rig.inputs(case).make(Draw(rig.seed(), "declared"))
        cold = settings.l2 == "cold"
        flush = (lambda: rig.device.flush(())) if cold else (lambda: None)
        reference_ms = rig.reference.time_ms(case, inputs, settings.threads, flush)
    dropped = _measure_baseline(verifier, baseline)
    return TaskCheck(rejected, tuple(dropped), reference_ms, flops, moved, rig.tolerance)


def _measure_baseline(verifier: Verifier, baseline: Path) -> list[tuple[Mapping[str, int], str]]:
    """Run the baseline everywhere. Where it fails, other than on the timed inputs, nothing else need pass."""
    problem = verifier.rig.problem
    found: dict[Key, _Learned] = {}
    _learn(verifier, baseline, (problem.timed, *(c for c in problem.checks if not c.secret)), found)
    for case in (c for c in problem.checks if c.secret):
        try:
            if not has_room(Layout.of(case), verifier.rig.device):
                raise TaskError("it takes too much memory")
            _learn(verifier, baseline, (case,), found)
        except TaskError as error:  # nobody promised that the reference can do these dims
            found[key(case, "declared")] = _Learned(case, "declared", str(error))
    dropped: list[tuple[Mapping[str, int], str]] = []
    for learned in found.values():
        if learned.reason is None:
            verifier.baseline[key(learned.case, learned.distribution)] = learned.exactness()
            continue
        if learned.case is problem.timed and learned.distribution == "declared":
            raise TaskError(f"the baseline fails at the timed dims {dict(learned.case.dims)}: {learned.reason}")
        verifier.dropped.add(key(learned.case, learned.distribution))
        dropped.append((learned.case.dims, f"{learned.distribution} inputs: {learned.reason}"))
    return dropped


def _learn(verifier: Verifier, baseline: Path, cases: Sequence[Case], found: dict[Key, _Learned]) -> None:
    """Run the baseline at these cases until each was judged as often as it takes, or failed."""
    jobs = [(case, d) for case in cases for d in distributions(case) for _ in range(_draws(case, d))]
    while jobs:
        records, failure = verifier.run(baseline, jobs)
        for (case, distribution), record in zip(jobs, records, strict=False):
            learned = found.setdefault(key(case, distribution), _Learned(case, distribution))
            learned.take(verifier.judgement(case, record))
        failed = jobs[len(records)] if failure is not None else None
        jobs = jobs[len(records) :]
        if failed is not None:
            # What it cannot run once it need not run again.
            found.setdefault(key(*failed), _Learned(*failed)).reason = failure
            jobs = [job for job in jobs if job != failed]


def _draws(case: Case, distribution: Distribution) -> int:
    least = min(t.elements for t in case.tensors if t.role != "in")
    draws = _FEW if least >= _MANY_ELEMENTS else _SEVERAL
    if distribution not in _EXTREME:
        return draws
    return _MANY_DRAWS if sum(t.elements for t in case.tensors) <= _CHEAP_ELEMENTS else 2 * draws


@dataclass(slots=True)
class _Learned:
    """How the baseline fares on a case's inputs of one distribution; `reason` is None while all of it is right."""

    case: Case
    distribution: Distribution
    reason: str | None = None
    judgements: list[Judgement] = field(default_factory=list)

    def take(self, judgement: Judgement) -> None:
        self.judgements.append(judgement)
        self.reason = self.reason or judgement.reason

    def exactness(self) -> dict[str, Exactness]:
        known = {}
        for name in self.judgements[0].norms:
            norms = [j.norms[name] for j in self.judgements]
            scale = math.sqrt(sum(norm * norm for _, norm in norms) / len(norms))
            worst = max(relative_error(error, norm, scale) for error, norm in norms)
            known[name] = Exactness(worst, scale, max(j.shares[name] for j in self.judgements))
        return known


def _try_wrong_answers(verifier: Verifier, case: Case) -> tuple[str, ...]:
    """Names of the wrong answers that the elementwise tolerance rejects. Raises TaskError on one that it admits."""
    rig = verifier.rig
    assert rig.tolerance is not None
    draw, other = Draw(rig.seed(), "declared"), Draw(rig.seed(), "declared")
    inputs = rig.inputs(case).make(draw)
    whole = verifier.expected(case, draw)
    right = _in_own_types(case, whole)
    elsewhere = _in_own_types(case, verifier.expected(case, other))
    # Rounding may not be what rejects a wrong answer, so both sides are rounded to the output's type.
    rounded = {n: value.to(torch.float64) if value.dtype.is_floating_point else value for n, value in right.items()}
    expected = {**whole, **rounded}
    rejected = []
    for name, answer in _wrong_answers(case, inputs, right, elsewhere):
        result = judge(case, answer, expected, rig.tolerance, None)
        if result.reason is None:
            largest = max((float(v.to(torch.float64).abs().max()) for v in rounded.values() if v.numel()), default=0.0)
            raise TaskError(
                f"the tolerance is unfit: an answer of {_SAYING[name]} would pass "
                f"(atol={rig.tolerance.atol:g}, rtol={rig.tolerance.rtol:g}, largest |reference| {largest:.3g}): "
                "tighten it, or give the inputs a larger range"
            )
        if name not in rejected:
            rejected.append(name)
    return tuple(rejected)


_SAYING = {
    "zeros": "all zeros",
    "constant": "one constant",
    "input copy": "a copy of an input",
    "half": "which the second half is zeros",
}


def _wrong_answers(
    case: Case,
    inputs: Mapping[str, torch.Tensor],
    right: Mapping[str, torch.Tensor],
    elsewhere: Mapping[str, torch.Tensor],
) -> Sequence[tuple[str, Mapping[str, torch.Tensor]]]:
    """Answers that are wrong: each changes one output and leaves the others right."""
    answers: list[tuple[str, Mapping[str, torch.Tensor]]] = []
    for tensor in case.tensors:
        if tensor.role == "in" or tensor.elements == 0:
            continue
        value = right[tensor.name]
        half = value.clone().view(-1)
        half[half.numel() // 2 :] = 0
        made = {
            "zeros": torch.zeros_like(value),
            "constant": _constant(elsewhere[tensor.name]),
            "half": half.view(value.shape),
        }
        if tensor.elements == 1:
            del made["half"]
        answers.extend((name, {**right, tensor.name: wrong}) for name, wrong in made.items())
        for copy in _copies(tensor, inputs):
            if not torch.equal(copy, value):  # a kernel that copies is right to do so
                answers.append(("input copy", {**right, tensor.name: copy}))
    return answers


def _constant(other: torch.Tensor) -> torch.Tensor:
    """The mean of the answer to *other* inputs: the best constant that looks at no input."""
    if other.dtype == torch.bool:
        return torch.ones_like(other)
    return torch.full_like(other, other.to(torch.float64).nanmean().item())


def _copies(output: Tensor, inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    dtype = torch_dtype(output.dtype)
    return [v.reshape(output.shape).to(dtype) for v in inputs.values() if v.numel() == output.elements]


def _in_own_types(case: Case, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {t.name: values[t.name].to(torch_dtype(t.dtype)) for t in case.tensors if t.role != "in"}
