"""Outputs of which more than one is right: in any order, or indices that may differ where values are equal.

Both sides are brought into a form in which right answers are equal; the judge then compares as always.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from profiling.harness.arena import index_of
from profiling.harness.reference import widened
from profiling.types import Case, Tensor, Tolerance

_EXACT = Tolerance(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Form:
    """What is compared, and how closely; `note` says in a reason what was done to it."""

    output: torch.Tensor
    expected: torch.Tensor
    tolerance: Tolerance
    note: str = ""


def comparable(
    case: Case, tensor: Tensor, output: torch.Tensor, expected: Mapping[str, torch.Tensor], tolerance: Tolerance
) -> Form | str:
    """An output and the reference's in the form in which they are compared, or what is wrong with it at once.

    Args:
        case: the call's.
        tensor: the output.
        output: as the kernel wrote it.
        expected: the reference's outputs, and the inputs that a tensor's `ties` name.
        tolerance: of the task. Values of an input that indices point to are compared exactly.
    """
    form = Form(output, expected[tensor.name], tolerance)
    if tensor.ties is not None:
        pointed = _pointed(case, tensor, form, expected[tensor.ties])
        if isinstance(pointed, str):
            return pointed
        form = pointed
    if tensor.unordered and tensor.shape:
        note = f"{form.note}, sorted along the last axis"
        form = Form(_sorted(form.output), _sorted(form.expected), form.tolerance, note)
    return form


def _sorted(values: torch.Tensor) -> torch.Tensor:
    # Few types can be sorted as they are; in the wider one the order is the same.
    return values.to(widened(values.dtype)).sort(dim=-1).values.to(values.dtype)


def _pointed(case: Case, tensor: Tensor, form: Form, values: torch.Tensor) -> Form | str:
    """The values at a kernel's indices and at the reference's, instead of the indices."""
    rows = values.numel() // values.shape[-1]
    table = values.to(widened(values.dtype)).reshape(rows, -1)
    given, wanted = (i.to(torch.int64).reshape(rows, -1) for i in (form.output, form.expected))
    outside = ((given < 0) | (given >= table.shape[1])).reshape(-1)
    if bool(outside.any()):
        at = int(torch.nonzero(outside)[0])
        return f"{_named(tensor, at)} is {int(given.reshape(-1)[at])}, but {tensor.ties} has {table.shape[1]} to a row"
    twice = _repeated(given) & ~_repeated(wanted).any(dim=-1, keepdim=True)  # in rows where the reference repeats none
    if bool(twice.any()):
        row, place = torch.nonzero(twice)[0].tolist()
        index = int(given.sort(dim=-1).values[row, place])
        return f"{tensor.name} names index {index} twice in row {row}"
    is_input = next(t for t in case.tensors if t.name == tensor.ties).role == "in"
    got, want = (table.gather(1, i).reshape(form.output.shape) for i in (given, wanted))
    note = f", in values of {tensor.ties} that it points to"
    return Form(got, want, _EXACT if is_input else form.tolerance, note)


def _repeated(indices: torch.Tensor) -> torch.Tensor:
    """Where a row, sorted, has an index that comes again."""
    ordered = indices.sort(dim=-1).values
    return ordered[:, 1:] == ordered[:, :-1]


def _named(tensor: Tensor, at: int) -> str:
    return f"{tensor.name}[{','.join(str(i) for i in index_of(at, tensor.shape))}]"
