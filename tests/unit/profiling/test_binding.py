"""The task decides what a kernel is given; a value that does not fit its C type must never be cut silently."""

from __future__ import annotations

import pytest

from backends.types import Parameter, Signature
from profiling.binding import TensorRule, bind, convention_used, evaluate_expression
from profiling.types import Scalar, TaskError, Tensor

A = Parameter("A", "const float*", "float32", pointer=True, const=True)
C = Parameter("C", "float*", "float32", pointer=True, const=False)
N = Parameter("N", "int", "int32", pointer=False, const=False)
ALPHA = Parameter("alpha", "float", "float32", pointer=False, const=False)


def scalar(dtype: str, value: float) -> int | float | bool:
    parameter = Parameter("p", dtype, dtype, pointer=False, const=False)
    case = bind(Signature((C, parameter)), {"n": 4}, None, {"p": value})
    argument = case.arguments[1]
    assert isinstance(argument, Scalar)
    return argument.value


def test_rules_give_shape_role_and_init() -> None:
    rules = {"A": TensorRule(("N", "2*N"), init="uniform"), "C": TensorRule(("N",), role="inout")}
    case = bind(Signature((A, C, N)), {"N": 8}, rules, {})
    assert case.arguments[0] == Tensor("A", (8, 16), "float32", "in", "uniform")
    assert case.arguments[1] == Tensor("C", (8,), "float32", "inout")
    assert case.arguments[2] == Scalar("N", "int32", 8)


def test_without_rules_each_pointer_holds_the_product_of_the_two_largest_dims_and_the_run_says_so() -> None:
    signature = Signature((A, C, N))
    case = bind(signature, {"N": 8, "M": 3, "K": 5}, None, {})
    assert [t.shape for t in case.tensors] == [(40,), (40,)]
    said = convention_used(signature, {"N": 8, "M": 3, "K": 5}, None)
    assert said is not None
    assert "40 elements" in said


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int32", 3_000_000_000), ("uint8", 256), ("uint32", -1), ("int32", 0.5), ("bool", 2), ("float32", 1e39)],
)
def test_a_value_outside_its_type_is_refused(dtype: str, value: float) -> None:
    with pytest.raises(TaskError, match=rf"`{dtype} p`: .* (fit|whole number|bool)"):
        scalar(dtype, value)


def test_values_at_the_edge_of_their_type_pass() -> None:
    assert scalar("uint64", 2**64 - 1) == 2**64 - 1
    assert scalar("int64", -(2**63)) == -(2**63)
    assert scalar("bool", 1) is True
    assert scalar("int32", 4.0) == 4


def test_a_dim_that_is_not_given_is_named() -> None:
    with pytest.raises(TaskError, match=r"`int N` has no value"):
        bind(Signature((C, N)), {"M": 4}, None, {})


def test_a_kernel_without_an_output_is_an_error() -> None:
    with pytest.raises(TaskError, match="no output"):
        bind(Signature((A, N)), {"N": 4}, None, {})


def test_rules_and_scalars_that_match_nothing_are_named() -> None:
    with pytest.raises(TaskError, match=r"task\.tensors\.B"):
        bind(Signature((A, C, N)), {"N": 4}, {"B": TensorRule(("N",))}, {})
    with pytest.raises(TaskError, match=r"task\.scalars\.beta"):
        bind(Signature((C, ALPHA)), {"N": 4}, None, {"alpha": 1, "beta": 2})


def test_a_const_pointer_cannot_be_an_output_nor_change_its_type() -> None:
    with pytest.raises(TaskError, match="role"):
        bind(Signature((A, C)), {"N": 4}, {"A": TensorRule(("N",), role="out")}, {})
    with pytest.raises(TaskError, match="dtype"):
        bind(Signature((A, C)), {"N": 4}, {"A": TensorRule(("N",), dtype="float64")}, {})


@pytest.mark.parametrize("expression", ["2*M*", "M*X", "__import__('os')", "M/0"])
def test_an_expression_that_is_not_arithmetic_over_the_dims_is_refused(expression: str) -> None:
    with pytest.raises(TaskError, match="cannot evaluate"):
        evaluate_expression(expression, {"M": 4}, "work.flops")


def test_expressions_are_arithmetic() -> None:
    assert evaluate_expression("2*M*N + max(M, N)", {"M": 3, "N": 5}, "work") == 35
    with pytest.raises(TaskError, match="at least 1"):
        bind(Signature((C,)), {"N": 4}, {"C": TensorRule(("N-4",))}, {})
