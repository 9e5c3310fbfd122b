"""The arguments of a Triton kernel at concrete dims, from what the baseline's `setup` made there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backends.types import Argument
from profiling.binding import TensorRule, check_outputs, evaluate_expression
from profiling.types import Case, Role, Scalar, TaskError, Tensor


def bind_arguments(
    arguments: Sequence[Argument],
    dims: Mapping[str, int],
    rules: Mapping[str, TensorRule] | None,
    scalars: Mapping[str, int | float | bool],
) -> Case:
    """The case that `setup` describes; `rules` may say what a tensor is for and how it is filled, `scalars` a value.

    Raises:
        TaskError: a rule or a scalar names no argument, or contradicts `setup`.
    """
    tensors = {a.name for a in arguments if a.shape is not None}
    for name in rules or {}:
        if name not in tensors:
            raise TaskError(
                f"task.tensors.{name}: the baseline's setup() makes no such tensor; it makes {_list(tensors)}"
            )
    values = {a.name for a in arguments if a.shape is None}
    for name in scalars:
        if name not in values:
            raise TaskError(
                f"task.scalars.{name}: the baseline's setup() makes no such scalar; it makes {_list(values)}"
            )
    both = sorted(set(scalars) & set(dims))
    if both:
        raise TaskError(f"task.scalars.{both[0]}: it is one of the dims too; give it once")
    case = Case(dict(dims), tuple(_bound(a, dims, (rules or {}).get(a.name), scalars) for a in arguments))
    check_outputs(case)
    return case


def _bound(
    argument: Argument,
    dims: Mapping[str, int],
    rule: TensorRule | None,
    scalars: Mapping[str, int | float | bool],
) -> Tensor | Scalar:
    if argument.shape is None:
        value = scalars.get(argument.name, argument.value)
        if value is None:
            raise TaskError(f"{argument.name}: setup() gives it no value")
        return Scalar(argument.name, argument.dtype, value)
    if rule is not None and rule.dtype is not None and rule.dtype != argument.dtype:
        raise TaskError(f"task.tensors.{argument.name}: dtype {rule.dtype}, but setup() makes {argument.dtype}")
    if rule is not None:
        where = f"task.tensors.{argument.name}.shape"
        said = tuple(int(evaluate_expression(extent, dims, where)) for extent in rule.shape)
        if said != argument.shape:
            raise TaskError(f"{where}: {list(said)}, but setup() makes {list(argument.shape)}")
    role: Role = "out" if argument.output else "in"
    if rule is not None and rule.role is not None:
        role = rule.role
    return (rule or TensorRule(argument.shape)).tensor(argument.name, argument.shape, argument.dtype, role)


def _list(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
