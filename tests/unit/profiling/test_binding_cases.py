"""Tasks over real CUDA entry points: the tensor or value that each parameter gets, or the line that says why not."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import pytest

from backends.registry import get_backend
from backends.types import BuildSpec, Signature
from profiling.binding import TensorRule, bind, convention_used
from profiling.types import TaskError, Tensor

DATA = Path(__file__).parents[2] / "data" / "signatures"
Rules = Mapping[str, TensorRule]
Values = Mapping[str, int | float | bool]


@lru_cache
def signature(name: str) -> Signature:
    return get_backend("cuda").signature(DATA / f"{name}.cu", BuildSpec())


def bound(name: str, dims: Mapping[str, int], rules: Rules | None = None, scalars: Values | None = None) -> str:
    """The arguments in one line: `A in float32 [8, 16]`, `N=8`."""
    case = bind(signature(name), dims, rules, scalars or {})
    return "; ".join(
        f"{a.name} {a.role} {a.dtype} {list(a.shape)}" if isinstance(a, Tensor) else f"{a.name}={a.value}"
        for a in case.arguments
    )


def test_scalars_that_are_not_dims_stay_out_of_the_buffer_sizes() -> None:
    """A zero point of 12800 is no extent."""
    dims = {"M": 64, "N": 32, "K": 16}
    scales = {"scale_A": 0.5, "scale_B": 0.25, "scale_C": 2.0}
    points = {"zero_point_A": -5, "zero_point_B": 12800, "zero_point_C": 7}
    assert bound("int8_mixed_scalars", dims, None, {**scales, **points}) == (
        "A in int8 [2048]; B in int8 [2048]; C out int8 [2048]; M=64; N=32; K=16; "
        "scale_A=0.5; scale_B=0.25; scale_C=2.0; zero_point_A=-5; zero_point_B=12800; zero_point_C=7"
    )


def test_one_dim_alone_is_the_size_and_the_run_says_so() -> None:
    assert (
        bound("lower_case_size_t", {"n": 1000})
        == "a in float32 [1000]; b in float32 [1000]; c out float32 [1000]; n=1000"
    )
    said = convention_used(signature("lower_case_size_t"), {"n": 1000}, None)
    assert said is not None
    assert said.startswith("task.tensors does not name `a`, `b`, `c`: each holds 1000 elements")


def test_integers_of_unknown_content_are_pointed_out() -> None:
    """Random expert numbers would make a scatter kernel write anywhere."""
    said = convention_used(signature("comments_in_list"), {"T": 8, "D": 4, "E": 2, "capacity": 4}, None)
    assert said is not None
    assert "`expert_idx`: random whole numbers; for indices or sizes, give inputs() in the reference" in said


def test_an_array_of_dims_comes_from_the_reference() -> None:
    rules = {
        "input": TensorRule(("B", "N")),
        "output": TensorRule(("B",)),
        "shape": TensorRule(("ndim",), init="reference"),
    }
    dims = {"B": 16, "N": 128, "ndim": 2}
    assert bound("dims_array", dims, rules, {"dim": 1}) == (
        "input in float32 [16, 128]; dim=1; output out int32 [16]; shape in int32 [2]; ndim=2"
    )
    assert "shape in uint64 [2]; ndim=2" in bound("dims_array_size_t", dims, rules, {"dim": 1})


def test_in_place_kernels() -> None:
    """Taken as an output, the image would be random bytes to invert: the run says how to tell it."""
    dims = {"width": 64, "height": 32}
    rules = {"image": TensorRule(("height", "width", 4), role="inout")}
    assert bound("in_place", dims, rules) == "image inout uint8 [32, 64, 4]; width=64; height=32"
    assert convention_used(signature("in_place"), dims, rules) is None
    said = convention_used(signature("in_place"), dims, None)
    assert said is not None
    assert said.endswith("solve has no input; if it reads `image`, set task.tensors.image.role: inout")


def test_inputs_that_are_not_const() -> None:
    """The task decides: cos and sin are inputs although the kernel could write them."""
    table = TensorRule(("M", "D"), role="in")
    rules = {"Q": table, "cos": table, "sin": table, "output": TensorRule(("M", "D"))}
    assert bound("non_const_inputs", {"M": 4, "D": 8}, rules) == (
        "Q in float32 [4, 8]; cos in float32 [4, 8]; sin in float32 [4, 8]; output out float32 [4, 8]; M=4; D=8"
    )


def test_an_output_that_is_read_keeps_its_coefficients() -> None:
    rules = {"A": TensorRule(("M", "K")), "B": TensorRule(("K", "N")), "C": TensorRule(("M", "N"), role="inout")}
    assert bound("half_inout", {"M": 2, "N": 3, "K": 4}, rules, {"alpha": 1, "beta": 0.5}) == (
        "A in float16 [2, 4]; B in float16 [4, 3]; C inout float16 [2, 3]; M=2; N=3; K=4; alpha=1.0; beta=0.5"
    )


def test_scalars_before_and_between_pointers() -> None:
    given = {"gamma": 1.5, "beta": -0.25, "eps": 0.0078125}
    assert bound("scalars_before_pointers", {"N": 6}, None, given) == (
        "input in float32 [6]; gamma=1.5; beta=-0.25; output out float32 [6]; N=6; eps=0.0078125"
    )
    assert bound("scalar_between_pointers", {"N": 6}) == "A in float32 [6]; N=6; out out float32 [6]"


def test_a_modulus_past_63_bits_is_whole() -> None:
    p = 2**64 - 59
    assert bound("modulus_64_bit", {"n": 4}, None, {"p": p}) == (
        f"xs in uint64 [4]; ys in uint64 [4]; p={p}; out_xy out uint64 [4]; n=4"
    )
    with pytest.raises(TaskError, match=rf"`uint64_t p`: {2**64} does not fit; it holds 0 to {2**64 - 1}"):
        bound("modulus_64_bit", {"n": 4}, None, {"p": 2**64})


def test_outputs_of_three_types_packed() -> None:
    rules = {
        "x": TensorRule(("M", "K")),
        "y": TensorRule(("M", "K/2")),
        "scales": TensorRule(("M", "K/BLOCK_SIZE"), dtype="float8_e4m3"),
        "global_scale": TensorRule(()),
    }
    assert bound("three_output_types", {"M": 2, "K": 32, "BLOCK_SIZE": 16}, rules) == (
        "x in float32 [2, 32]; y out uint8 [2, 16]; scales out float8_e4m3 [2, 2]; global_scale out float32 []; "
        "M=2; K=32; BLOCK_SIZE=16"
    )


def test_a_pointer_and_a_dim_of_one_name() -> None:
    """K is the keys; the dim K is the task's own, for shapes; d is not D."""
    rows = TensorRule(("M", "d"))
    columns = TensorRule(("K", "d"))
    rules = {"Q": rows, "dO": rows, "dQ": rows, "K": columns, "V": columns, "dK": columns, "dV": columns}
    line = bound("several_outputs", {"M": 2, "K": 3, "d": 4}, rules, {"N": 3})
    assert line.startswith(
        "Q in float32 [2, 4]; K in float32 [3, 4]; V in float32 [3, 4]; dO in float32 [2, 4]; dQ out "
    )
    assert line.endswith("M=2; N=3; d=4")


def test_untyped_pointers_take_the_tasks_type() -> None:
    rules = {"input": TensorRule(("n",), dtype="bfloat16"), "output": TensorRule(("n",), dtype="float8_e5m2")}
    assert bound("void_pointers", {"n": 4}, rules, {"count": 2**40, "bits": 2**32 - 1}) == (
        f"input in bfloat16 [4]; output out float8_e5m2 [4]; count={2**40}; bits={2**32 - 1}"
    )


def test_pointers_to_vectors_count_elements() -> None:
    rules = {"a": TensorRule(("4*n",)), "b": TensorRule(("n", 2))}
    assert bound("float_vectors", {"n": 3}, rules) == "a in float32 [12]; b out float16 [3, 2]; n=3"


def test_a_stream_is_the_default_one() -> None:
    assert bound("stream", {"n": 3}) == "a in float32 [3]; b out float32 [3]; n=3; stream=0"


REFUSED: dict[str, tuple[str, dict[str, int], Rules | None, Values, str]] = {
    "a dim in the wrong case": (
        *("lower_case_size_t", {"N": 4}, None, {}),
        "`size_t n` has no value, the nearest is `N`; give it in task.dims or task.scalars (--dim n=…)",
    ),
    "a tensor in the wrong case": (
        *("lower_case_size_t", {"n": 4}, {"A": TensorRule(("n",))}, {}),
        "task.tensors.A: solve has no pointer of that name, the nearest is `a`; it has `a`, `b`, `c`",
    ),
    "a scalar that solve does not take": (
        *("scalar_between_pointers", {"N": 4}, None, {"esp": 1e-5}),
        "task.scalars.esp: solve has no by-value parameter of that name; it has `N`",
    ),
    "a value in two places": (
        *("scalar_between_pointers", {"N": 4}, None, {"N": 8}),
        "task.scalars.N: task.dims gives `N` too; keep one of them",
    ),
    "too large for int": (
        *("scalar_between_pointers", {"N": 3_000_000_000}, None, {}),
        "`int N`: 3000000000 does not fit; it holds -2147483648 to 2147483647",
    ),
    "a value for a stream": (
        *("stream", {"n": 4}, None, {"stream": 0}),
        "`stream` is a stream: it is given the default one; take its value out",
    ),
    "untyped without a type": (
        *("void_pointers", {"n": 4}, {"input": TensorRule(("n",))}, {"count": 1, "bits": 1}),
        "`input` is an untyped pointer; give task.tensors.input.dtype",
    ),
    "an unknown type": (
        *("void_pointers", {"n": 4}, {"input": TensorRule(("n",), dtype="float8_e5m3")}, {"count": 1, "bits": 1}),
        "task.tensors.input.dtype: `float8_e5m3` is no element type, the nearest is `float8_e5m2`; known: `b",
    ),
    "vectors of unknown number": (
        *("float_vectors", {"n": 4}, None, {}),
        "`const float4* a` points to 4 float32 each; give task.tensors.a.shape, counted in float32",
    ),
    "half a vector": (
        *("float_vectors", {"n": 3}, {"a": TensorRule(("n",)), "b": TensorRule(("n", 2))}, {}),
        "task.tensors.a.shape: 3 elements are no whole number of `const float4*`, 4 each",
    ),
    "an extent of zero": (
        *("scalar_between_pointers", {"N": 4}, {"A": TensorRule(("N//8",))}, {}),
        "task.tensors.A.shape: `N//8` is 0; an extent is a whole number of at least 1",
    ),
    "half an extent": (
        *("scalar_between_pointers", {"N": 5}, {"A": TensorRule(("N/2",))}, {}),
        "task.tensors.A.shape: `N/2` is 2.5; an extent is a whole number of at least 1",
    ),
    "more than a machine can address": (
        *("scalar_between_pointers", {"N": 2**30}, {"A": TensorRule(("N", "N"))}, {}),
        "task.tensors.A: 1.15e+18 elements are more than a machine can address; make the dims smaller",
    ),
    "the same by the convention": (
        *("top_k_outputs", {"M": 2**30, "E": 2**30, "k": 1}, None, {}),
        "task.tensors.logits: 1.15e+18 elements are more than a machine can address; make the dims smaller",
    ),
    "no pointers": (
        *("no_parameters", {"n": 4}, None, {}),
        "solve has no pointer parameter, so it can write nothing; give it one for each output",
    ),
    "a const output": (
        *("scalar_between_pointers", {"N": 4}, {"A": TensorRule(("N",), role="out")}, {}),
        "task.tensors.A.role: `out`, but solve takes it as const float*",
    ),
    "every output declared an input": (
        *("scalar_between_pointers", {"N": 4}, {"out": TensorRule(("N",), role="in")}, {}),
        "solve has no output",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_in_one_line(what: str) -> None:
    name, dims, rules, scalars, line = REFUSED[what]
    with pytest.raises(TaskError) as caught:
        bound(name, dims, rules, scalars)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)
