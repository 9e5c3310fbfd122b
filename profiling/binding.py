"""Binding a signature's parameters to concrete tensors and scalars. The task decides; a candidate never does."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from simpleeval import InvalidExpression, SimpleEval

from backends.scalar_types import DTYPES, STREAM, vector_of
from backends.types import Parameter, Signature
from profiling.scalar_values import INTEGER_RANGES, fitted
from profiling.types import Case, Init, Role, Scalar, TaskError, Tensor

_ADDRESS_BITS = 47  # of user space: no machine holds a larger buffer
# A pointer to raw unsigned words may hold what has no C type of its own there.
_RAW_WORDS = {"uint8": {"bool", "int8", "float8_e4m3", "float8_e5m2"}, "uint16": {"float16", "bfloat16", "int16"}}


@dataclass(frozen=True, slots=True)
class TensorRule:
    """What the task says of one pointer: shape expressions over dims, and the rest as of a `Tensor`."""

    shape: tuple[int | str, ...]
    dtype: str | None = None
    role: Role | None = None
    init: Init = "normal"
    zeroed: bool = False
    unordered: bool = False
    ties: str | None = None

    def tensor(self, name: str, shape: tuple[int, ...], dtype: str, role: Role) -> Tensor:
        """The tensor that it speaks of, at concrete dims."""
        return Tensor(name, shape, dtype, role, self.init, self.zeroed, self.unordered, self.ties)


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
        scalars: values of the by-value parameters that are not dims. A CUDA stream takes none: it is the default one.

    Raises:
        TaskError: a parameter without a value, an unused rule, a value outside its type, or no output at all.
    """
    _check_names(signature, dims, tensors, scalars)
    arguments = tuple(
        _tensor(parameter, dims, tensors) if parameter.pointer else _scalar(parameter, dims, scalars)
        for parameter in signature.parameters
    )
    case = Case(dims=dict(dims), arguments=arguments)
    if not case.tensors:
        raise TaskError("solve has no pointer parameter, so it can write nothing; give it one for each output")
    if not any(t.role != "in" for t in case.tensors):
        raise TaskError(
            "solve has no output: every pointer is const; make the output non-const or set its role in task.tensors"
        )
    check_outputs(case)
    return case


def check_outputs(case: Case) -> None:
    """Hold what the task says of outputs against the case. Raises TaskError."""
    known = {t.name: t for t in case.tensors}
    for tensor in case.tensors:
        where = f"task.tensors.{tensor.name}"
        if tensor.zeroed and tensor.role != "out":
            raise TaskError(f"{where}.zeroed: its role is `{tensor.role}`; only what is an output alone can be zeroed")
        if (tensor.unordered or tensor.ties is not None) and tensor.role == "in":
            raise TaskError(f"{where}: `unordered` and `ties` say how an output is compared, and it is an input")
        if tensor.ties is None:
            continue
        values = known.get(tensor.ties)
        if values is None or values is tensor:
            others = _list(n for n in known if n != tensor.name)
            raise TaskError(f"{where}.ties: `{tensor.ties}` is no other tensor of the kernel; it has {others}")
        if values.role == "inout" or not values.shape:
            raise TaskError(f"{where}.ties: `{tensor.ties}` must have an axis and be an input or an output, not both")
        if tensor.dtype not in INTEGER_RANGES:
            raise TaskError(f"{where}.ties: it holds {tensor.dtype}, and indices are integers")
        if tensor.elements % (values.elements // values.shape[-1]):
            raise TaskError(
                f"{where}.ties: {list(tensor.shape)} has no whole number of indices for each row of "
                f"{tensor.ties} {list(values.shape)}"
            )


def convention_used(
    signature: Signature, dims: Mapping[str, int], tensors: Mapping[str, TensorRule] | None
) -> str | None:
    """One line on the pointers whose size, content or role is a guess; None when the task says it all."""
    pointers = [p for p in signature.parameters if p.pointer]
    guessed = [p for p in pointers if p.name not in (tensors or {})]
    if not guessed:
        return None
    size = math.prod(_convention_shape(dims))
    notes = [
        f"task.tensors does not name {_list(p.name for p in guessed)}: "
        f"each holds {size} elements, flat ({'the one dim' if len(dims) == 1 else 'product of the two largest dims'}); "
        f"for a reference that needs shapes set task.tensors.{guessed[0].name}.shape"
    ]
    whole = [p.name for p in guessed if p.const and p.dtype in INTEGER_RANGES]
    if whole:
        notes.append(f"{_list(whole)}: random whole numbers; for indices or sizes, give inputs() in the reference")
    if not any(p.const for p in pointers) and not any(
        rule.role in ("in", "inout") for rule in (tensors or {}).values()
    ):
        first = guessed[0].name
        notes.append(f"solve has no input; if it reads `{first}`, set task.tensors.{first}.role: inout")
    return "; ".join(notes)


def _check_names(
    signature: Signature,
    dims: Mapping[str, int],
    tensors: Mapping[str, TensorRule] | None,
    scalars: Mapping[str, object],
) -> None:
    pointers = [p.name for p in signature.parameters if p.pointer]
    values = [p.name for p in signature.parameters if not p.pointer]
    for name in tensors or {}:
        if name not in pointers:
            raise TaskError(
                f"task.tensors.{name}: solve has no pointer of that name{_nearest(name, pointers)}; "
                f"it has {_list(pointers)}"
            )
    for name in scalars:
        if name not in values:
            raise TaskError(
                f"task.scalars.{name}: solve has no by-value parameter of that name{_nearest(name, values)}; "
                f"it has {_list(values)}"
            )
        if name in dims:
            raise TaskError(f"task.scalars.{name}: task.dims gives `{name}` too; keep one of them")
    for parameter in signature.parameters:
        if parameter.type == STREAM and parameter.name in {*dims, *scalars}:
            raise TaskError(f"`{parameter.name}` is a stream: it is given the default one; take its value out")


def _tensor(parameter: Parameter, dims: Mapping[str, int], tensors: Mapping[str, TensorRule] | None) -> Tensor:
    where = f"task.tensors.{parameter.name}"
    lanes = _lanes(parameter)
    rule = (tensors or {}).get(parameter.name)
    if rule is None:
        if lanes > 1:
            raise TaskError(
                f"`{parameter.type} {parameter.name}` points to {lanes} {parameter.dtype} each; "
                f"give {where}.shape, counted in {parameter.dtype}"
            )
        rule = TensorRule(_convention_shape(dims))
    if parameter.const and rule.role in ("out", "inout"):
        raise TaskError(
            f"{where}.role: `{rule.role}`, but solve takes it as {parameter.type}; drop the const or the role"
        )
    shape = tuple(_extent(extent, dims, f"{where}.shape") for extent in rule.shape)
    elements = math.prod(shape)
    if elements * 8 >= 1 << _ADDRESS_BITS:
        raise TaskError(f"{where}: {elements:.3g} elements are more than a machine can address; make the dims smaller")
    if elements % lanes:
        raise TaskError(f"{where}.shape: {elements} elements are no whole number of `{parameter.type}`, {lanes} each")
    role: Role = rule.role or ("in" if parameter.const else "out")
    return rule.tensor(parameter.name, shape, _element(parameter, rule.dtype), role)


def _lanes(parameter: Parameter) -> int:
    vector = vector_of(parameter.type.removeprefix("const ").rstrip("*"))
    return vector[1] if vector else 1


def _extent(extent: int | str, dims: Mapping[str, int], where: str) -> int:
    value = float(evaluate_expression(extent, dims, where))
    if not value >= 1 or not value.is_integer():
        raise TaskError(f"{where}: `{extent}` is {value:g}; an extent is a whole number of at least 1")
    return int(value)


def _element(parameter: Parameter, dtype: str | None) -> str:
    where = f"task.tensors.{parameter.name}.dtype"
    if dtype is not None and dtype not in DTYPES:
        raise TaskError(
            f"{where}: `{dtype}` is no element type{_nearest(dtype, DTYPES)}; known: {_list(sorted(DTYPES))}"
        )
    if parameter.dtype == "void":
        if dtype is None:
            raise TaskError(f"`{parameter.name}` is an untyped pointer; give {where}")
        return dtype
    if dtype is None or dtype == parameter.dtype:
        return parameter.dtype
    if dtype not in _RAW_WORDS.get(parameter.dtype, ()):
        raise TaskError(f"{where}: `{dtype}`, but solve takes {parameter.type}")
    return dtype


def _convention_shape(dims: Mapping[str, int]) -> tuple[int, ...]:
    if not dims:
        raise TaskError("task.dims is empty and task.tensors is absent: nothing says how large the buffers are")
    return (math.prod(sorted(dims.values())[-2:]),)


def _scalar(parameter: Parameter, dims: Mapping[str, int], scalars: Mapping[str, int | float | bool]) -> Scalar:
    name = parameter.name
    if parameter.type == STREAM:
        return Scalar(name, parameter.dtype, 0)
    if name not in dims and name not in scalars:
        raise TaskError(
            f"`{parameter.type} {name}` has no value{_nearest(name, [*dims, *scalars])}; "
            f"give it in task.dims or task.scalars (--dim {name}=…)"
        )
    try:
        return Scalar(name, parameter.dtype, fitted(dims[name] if name in dims else scalars[name], parameter.dtype))
    except ValueError as error:
        raise TaskError(f"`{parameter.type} {name}`: {error}") from None


def _nearest(name: str, known: Iterable[str]) -> str:
    """`, the nearest is …`, or nothing where nothing is near."""
    folded = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return f", the nearest is `{folded[near[0]]}`" if near else ""


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"`{n}`" for n in names) or "none"
