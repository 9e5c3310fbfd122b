"""Binding a signature's parameters to concrete tensors and scalars. The task decides; a candidate never does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simpleeval import InvalidExpression, SimpleEval

from backends.types import Parameter, Signature
from profiling.types import Case, Init, Role, Scalar, TaskError, Tensor

INTEGER_RANGES = {
    f"{prefix}int{bits}": ((0, 2**bits - 1) if prefix else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    for prefix in ("", "u")
    for bits in (8, 16, 32, 64)
}
_FLOAT_MAX = {"float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308}


@dataclass(frozen=True, slots=True)
class TensorRule:
    """What the task says of one pointer: shape expressions over dims, and optionally dtype, role and init."""

    shape: tuple[int | str, ...]
    dtype: str | None = None
    role: Role | None = None
    init: Init = "normal"


def evaluate_expression(expression: str | float, dims: Mapping[str, int], what: str) -> float:
    """Evaluate an arithmetic expression over the dims, e.g. `2*M*N*K`.

    Raises:
        TaskError: it is not arithmetic, or names a dim that is not given.
    """
    if not isinstance(expression, str):
        return expression
    functions = {"min": min, "max": max, "ceil": math.ceil, "log2": math.log2, "sqrt": math.sqrt}
    try:
        value = SimpleEval(names=dict(dims), functions=functions).eval(expression)
        return float(value)
    except (InvalidExpression, SyntaxError, ArithmeticError, TypeError, ValueError, KeyError) as error:
        known = ", ".join(dims) or "none"
        raise TaskError(f"{what}: cannot evaluate `{expression}` ({error}); known dims: {known}") from None


def bind(
    signature: Signature,
    dims: Mapping[str, int],
    tensors: Mapping[str, TensorRule] | None,
    scalars: Mapping[str, int | float | bool],
) -> Case:
    """Give every parameter its tensor or value.

    Args:
        signature: the baseline's.
        dims: values of the dims.
        tensors: the task's rules; a pointer without one follows the older convention (it holds the product of the
            two largest integer dims, one dim alone its value).
        scalars: values of the by-value parameters that are not dims.

    Raises:
        TaskError: a parameter without a value, an unused rule, a value outside its type, or no output at all.
    """
    _check_names(signature, tensors, scalars)
    arguments = tuple(
        _tensor(parameter, dims, tensors) if parameter.pointer else _scalar(parameter, dims, scalars)
        for parameter in signature.parameters
    )
    case = Case(dims=dict(dims), arguments=arguments)
    if not any(t.role != "in" for t in case.tensors):
        raise TaskError(
            "solve has no output: every pointer is const; make the output non-const or set its role in task.tensors"
        )
    return case


def convention_used(
    signature: Signature, dims: Mapping[str, int], tensors: Mapping[str, TensorRule] | None
) -> str | None:
    """One sentence on the pointers whose size the task does not give, None when it gives all."""
    names = [p.name for p in signature.parameters if p.pointer and p.name not in (tensors or {})]
    if not names:
        return None
    size = math.prod(_convention_shape(dims))
    return f"task.tensors does not name {_list(names)}: each holds {size} elements (product of the two largest dims)"


def _check_names(signature: Signature, tensors: Mapping[str, TensorRule] | None, scalars: Mapping[str, object]) -> None:
    pointers = [p.name for p in signature.parameters if p.pointer]
    values = [p.name for p in signature.parameters if not p.pointer]
    for name in tensors or {}:
        if name not in pointers:
            raise TaskError(f"task.tensors.{name}: solve has no pointer of that name; it has {_list(pointers)}")
    for name in scalars:
        if name not in values:
            raise TaskError(
                f"task.scalars.{name}: solve has no by-value parameter of that name; it has {_list(values)}"
            )


def _tensor(parameter: Parameter, dims: Mapping[str, int], tensors: Mapping[str, TensorRule] | None) -> Tensor:
    default_role: Role = "in" if parameter.const else "out"
    if tensors is None or parameter.name not in tensors:
        return Tensor(parameter.name, _convention_shape(dims), _element(parameter, None), default_role)
    rule = tensors[parameter.name]
    where = f"task.tensors.{parameter.name}.shape"
    shape = tuple(_extent(extent, dims, where) for extent in rule.shape)
    if parameter.const and rule.role in ("out", "inout"):
        raise TaskError(f"task.tensors.{parameter.name}.role: `{rule.role}`, but solve takes it as {parameter.type}")
    return Tensor(parameter.name, shape, _element(parameter, rule.dtype), rule.role or default_role, rule.init)


def _extent(extent: int | str, dims: Mapping[str, int], where: str) -> int:
    value = float(evaluate_expression(extent, dims, where))
    if value < 1 or not value.is_integer():
        raise TaskError(f"{where}: `{extent}` is {value:g}; an extent is a whole number of at least 1")
    return int(value)


def _element(parameter: Parameter, dtype: str | None) -> str:
    if parameter.dtype == "void":
        if dtype is None:
            raise TaskError(f"`{parameter.name}` is an untyped pointer; give task.tensors.{parameter.name}.dtype")
        return dtype
    if dtype is not None and dtype != parameter.dtype:
        raise TaskError(f"task.tensors.{parameter.name}.dtype: `{dtype}`, but solve takes {parameter.type}")
    return parameter.dtype


def _convention_shape(dims: Mapping[str, int]) -> tuple[int, ...]:
    if not dims:
        raise TaskError("task.dims is empty and task.tensors is absent: nothing says how large the buffers are")
    return (math.prod(sorted(dims.values())[-2:]),)


def _scalar(parameter: Parameter, dims: Mapping[str, int], scalars: Mapping[str, int | float | bool]) -> Scalar:
    if parameter.name in scalars:
        value: int | float | bool = scalars[parameter.name]
    elif parameter.name in dims:
        value = dims[parameter.name]
    else:
        raise TaskError(
            f"`{parameter.type} {parameter.name}` has no value; "
            f"give it in task.dims or task.scalars (--dim {parameter.name}=…)"
        )
    return Scalar(parameter.name, parameter.dtype, _in_range(parameter, value))


def _in_range(parameter: Parameter, value: int | float | bool) -> int | float | bool:
    if parameter.dtype == "bool":
        if value not in (0, 1):
            raise TaskError(f"`{parameter.name}`: {value} is not a bool")
        return bool(value)
    if parameter.dtype in INTEGER_RANGES:
        low, high = INTEGER_RANGES[parameter.dtype]
        if isinstance(value, float) and not value.is_integer():
            raise TaskError(f"`{parameter.name}`: {value} is not a whole number, but solve takes {parameter.type}")
        if not low <= value <= high:
            raise TaskError(f"`{parameter.name}`: {value} does not fit {parameter.type} ({low} to {high})")
        return int(value)
    if abs(value) > _FLOAT_MAX.get(parameter.dtype, 65504.0):
        raise TaskError(f"`{parameter.name}`: {value} does not fit {parameter.type}")
    return float(value)


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"`{n}`" for n in names) or "none"
