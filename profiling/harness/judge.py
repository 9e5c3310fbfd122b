"""Whether an output is right. On the host a tensor is worked through in pieces that fit the cache."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from profiling.harness.arena import index_of, torch_dtype
from profiling.harness.order import Form, comparable
from profiling.harness.reference import widened
from profiling.types import Case, Tensor, Tolerance

_PIECE = 1 << 16
_GPU_PIECE = 1 << 28  # only memory bounds it there
_BASELINE_SHARES = 4.0


@dataclass(frozen=True, slots=True)
class Exactness:
    """How exact the baseline is on one output, and how large that output commonly is.

    Attributes:
        error: its largest relative norm error over several calls.
        scale: the root mean square, over these calls, of the output's norm. An output whose terms happen to cancel is
            measured by it: its own small norm would make a relative error of any size.
        share: the largest part of the elementwise tolerance that one of its elements used up, over these calls.
    """

    error: float
    scale: float
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """Errors over all outputs of a call; None where they are not finite. `reason` is None when all is right.

    `norms` holds the norm of the error and of the reference by output; `shares`, of the baseline's calls alone, the
    largest part of the elementwise tolerance that an element used up.
    """

    reason: str | None
    max_abs_error: float | None
    relative_norm_error: float | None
    norms: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Sums:
    worst: float = 0.0
    error: float = 0.0
    norm: float = 0.0
    share: float | None = None  # where it is asked for
    first: int | None = None


def judge(
    case: Case,
    outputs: Mapping[str, torch.Tensor],
    expected: Mapping[str, torch.Tensor],
    tolerance: Tolerance,
    baseline: Mapping[str, Exactness] | None,
) -> Judgement:
    """Compare a call's outputs with the reference's.

    Integers must be equal, up to the order and the ties that the task leaves open. Floats need the same NaN and
    infinity masks, `|out - ref| <= atol + rtol*|ref|` for every element, and a relative norm error of at most
    `max(baseline_factor * baseline's, eps_factor * eps of the type)`. Where the baseline itself uses up much of the
    elementwise tolerance, chance would decide on a kernel as exact: there it is four times what the baseline uses.

    Args:
        case: which tensors are outputs.
        outputs: in the declared types.
        expected: floats in float64; the inputs that a tensor's `ties` name stand beside the outputs.
        tolerance: the bounds.
        baseline: how exact it is here, by output; None leaves the norm unbounded.
    """
    worst = relative = 0.0
    reason = None
    norms: dict[str, tuple[float, float]] = {}
    shares: dict[str, float] = {}
    for tensor in case.tensors:
        if tensor.role == "in":
            continue
        name = tensor.name
        form = comparable(case, tensor, outputs[name], expected, tolerance)
        if isinstance(form, str):
            worst, relative, norms[name], shares[name] = math.inf, math.inf, (math.inf, 0.0), math.inf
            reason = reason or form
            continue
        known = baseline[name] if baseline is not None else None
        form = replace(form, tolerance=_widened(form.tolerance, known))
        sums = _compare(form.output, form.expected, form.tolerance, learning=known is None)
        norms[name], shares[name] = (math.sqrt(sums.error), math.sqrt(sums.norm)), sums.share or 0.0
        error = relative_error(*norms[name], known.scale if known else 0.0)
        worst, relative = max(worst, sums.worst), max(relative, error)
        if reason is None and sums.first is not None:
            reason = _where(tensor, form, sums.first)
        elif reason is None and known is not None and torch_dtype(tensor.dtype).is_floating_point:
            reason = _inexact(tensor, error, known, tolerance)
    return Judgement(reason, _finite(worst), _finite(relative), norms, shares)


def relative_error(error: float, norm: float, scale: float) -> float:
    """A norm of an error over the norm of what was expected, or over the common norm where that is larger."""
    size = max(norm, scale)
    return error / size if size > 0.0 else math.inf if error > 0.0 else 0.0


def _inexact(tensor: Tensor, error: float, baseline: Exactness, tolerance: Tolerance) -> str | None:
    eps = torch.finfo(torch_dtype(tensor.dtype)).eps
    bound = max(tolerance.baseline_factor * baseline.error, tolerance.eps_factor * eps)
    if error <= bound:
        return None
    return (
        f"{tensor.name} is less exact than it may be: relative norm error {error:.3g}, "
        f"allowed {bound:.3g} (the baseline's is {baseline.error:.3g})"
    )


def _widened(tolerance: Tolerance, baseline: Exactness | None) -> Tolerance:
    factor = max(1.0, _BASELINE_SHARES * baseline.share) if baseline is not None else 1.0
    return replace(tolerance, atol=factor * tolerance.atol, rtol=factor * tolerance.rtol)


def _compare(output: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance, *, learning: bool) -> _Sums:
    sums = _Sums(share=0.0 if learning else None)
    flat, wanted = output.reshape(-1), expected.reshape(-1)
    length = _GPU_PIECE if flat.is_cuda else _PIECE
    for at in range(0, flat.numel(), length):
        piece, ref = flat[at : at + length], wanted[at : at + length]
        bad = _floats(piece, ref, tolerance, sums) if piece.dtype.is_floating_point else _integers(piece, ref, sums)
        if sums.first is None and bool(bad.any()):
            sums.first = at + int(torch.nonzero(bad)[0])
    return sums


def _floats(piece: torch.Tensor, ref: torch.Tensor, tolerance: Tolerance, sums: _Sums) -> torch.Tensor:
    """Elements that are wrong; adds to the sums."""
    out = piece.to(torch.float64)
    error = (out - ref).abs_()
    allowed = ref.abs().mul_(tolerance.rtol).add_(tolerance.atol)
    bad = error > allowed
    if sums.share is not None:
        sums.share = max(sums.share, float((error / allowed).nan_to_num_(0.0, 0.0).max()))
    squares = float(error.dot(error))
    if not math.isfinite(squares):
        # Infinities are compared as the output's type has them: what overflows there is infinite in the reference.
        # The float64 path above would call inf - inf a NaN and find nothing wrong with it.
        rounded = ref.to(piece.dtype).to(torch.float64)
        special = ~(out.isfinite() & rounded.isfinite())
        same = (out == rounded) | (out.isnan() & rounded.isnan())
        bad = torch.where(special, ~same, bad)
        error = torch.where(special, torch.where(same, 0.0, math.inf), error)
        ref = torch.where(special, 0.0, ref)
        squares = float(error.dot(error))
    sums.worst = max(sums.worst, float(error.max()))
    sums.error += squares
    sums.norm += float(ref.dot(ref))
    return bad


def _integers(piece: torch.Tensor, ref: torch.Tensor, sums: _Sums) -> torch.Tensor:
    wide = widened(piece.dtype)
    out, want = piece.to(wide), ref.to(piece.dtype).to(wide)
    bad = out != want
    if bool(bad.any()):
        error = (out.to(torch.float64) - want.to(torch.float64)).abs_()
        sums.worst = max(sums.worst, float(error.max()))
        sums.error += float(error.dot(error))
    sums.norm += float(want.to(torch.float64).square().sum())
    return bad


def _where(tensor: Tensor, form: Form, at: int) -> str:
    index = ",".join(str(i) for i in index_of(at, tensor.shape))
    got, want = form.output.reshape(-1)[at].item(), form.expected.reshape(-1)[at].item()
    if not form.output.dtype.is_floating_point:
        return f"{tensor.name}[{index}] is {got}, expected {want}{form.note}"
    allowed = form.tolerance.atol + form.tolerance.rtol * abs(want)
    off = f"off by {abs(got - want):.3g}, allowed {allowed:.3g}"
    return f"{tensor.name}[{index}] is {got:.9g}, expected {want:.9g} ({off}){form.note}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
