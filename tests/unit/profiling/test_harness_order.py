"""Tasks with more than one right answer: all of them must pass, and nothing else. And outputs that start as zeros."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from backends.types import Parameter, Signature
from profiling.binding import TensorRule, bind
from profiling.harness.harness import Harness
from profiling.harness.judge import judge
from profiling.types import Case, Limits, MeasureSettings, Problem, TaskError, Tensor, Tolerance
from tests.kernels import compile_kernel, integer, pointer

SETTINGS = MeasureSettings(warmup_ms=1.0, min_time_s=0.005, max_time_s=3.0)
TIGHT = Tolerance(1e-4, 1e-3)
X = torch.tensor([[5.0, 1.0, 5.0, 3.0], [2.0, 2.0, 0.0, 2.0]])
TOP = (Tensor("x", (2, 4), "float32", "in"), Tensor("i", (2, 2), "int32", "out", ties="x"))


def top(indices: list[list[int]], *, unordered: bool = False) -> str | None:
    case = Case({}, (TOP[0], replace(TOP[1], unordered=unordered)))
    expected = {"x": X, "i": torch.tensor([[0, 2], [0, 1]])}
    return judge(case, {"i": torch.tensor(indices, dtype=torch.int32)}, expected, TIGHT, None).reason


@pytest.mark.parametrize("right", [[[0, 2], [0, 1]], [[2, 0], [3, 1]], [[0, 2], [1, 3]]])
def test_an_index_is_right_where_its_value_equals_the_references(right: list[list[int]]) -> None:
    assert top(right) is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([[0, 3], [0, 1]], "i[0,1] is 3, expected 5 (off by 2, allowed 0), in values of x that it points to"),
        ([[0, 0], [0, 1]], "i names index 0 twice in row 0"),
        ([[0, 2], [0, 4]], "i[1,1] is 4, but x has 4 to a row"),
        ([[-1, 2], [0, 1]], "i[0,0] is -1, but x has 4 to a row"),
    ],
)
@pytest.mark.parametrize("unordered", [False, True])
def test_every_other_index_is_wrong(wrong: list[list[int]], said: str, unordered: bool) -> None:
    """An index named twice would let a top-k return one winner k times."""
    reason = top(wrong, unordered=unordered) or ""
    assert reason == said or (unordered and "sorted along the last axis" in reason)


def test_values_that_the_reference_computes_are_pointed_to_within_the_tolerance() -> None:
    """Which of two centres is nearer may be a matter of rounding: both are right then, a third is not."""
    case = Case({}, (Tensor("d", (1, 3), "float32", "out"), Tensor("i", (1,), "int64", "out", ties="d")))
    distances = torch.tensor([[1.0, 1.00001, 1.5]], dtype=torch.float64)
    expected = {"d": distances, "i": torch.tensor([0])}
    found = [
        judge(case, {"d": distances.float(), "i": torch.tensor([i])}, expected, TIGHT, None).reason for i in range(3)
    ]
    assert found[:2] == [None, None]
    assert "i[0] is 1.5" in (found[2] or "")


@pytest.mark.parametrize("dtype", ["float32", "float16", "float8_e5m2", "int32", "uint16", "bool"])
def test_an_unordered_output_is_a_multiset_for_each_row(dtype: str) -> None:
    kind = getattr(torch, dtype)
    case = Case({}, (Tensor("y", (2, 3), dtype, "out", unordered=True),))
    wide = torch.float64 if kind.is_floating_point else torch.int64
    expected = {"y": torch.tensor([[1, 0, 1], [0, 0, 1]]).to(wide)}

    def judged(rows: list[list[int]], *, unordered: bool = True) -> str | None:
        task = case if unordered else Case({}, (replace(case.tensors[0], unordered=False),))
        return judge(task, {"y": torch.tensor(rows).to(kind)}, expected, TIGHT, None).reason

    assert judged([[0, 1, 1], [1, 0, 0]]) is None
    assert judged([[0, 1, 1], [1, 0, 0]], unordered=False) is not None
    assert "sorted along the last axis" in (judged([[0, 0, 1], [1, 0, 0]]) or ""), "counts matter"
    assert judged([[0, 0, 1], [1, 1, 0]]) is not None, "rows are not mixed"


VALUES = Parameter("x", "const float*", "float32", pointer=True, const=True)
INDEX = Parameter("i", "int*", "int32", pointer=True, const=False)
OUT = Parameter("y", "float*", "float32", pointer=True, const=False)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"x": TensorRule(("n",), zeroed=True)}, "x.zeroed: its role is `in`"),
        ({"y": TensorRule(("n",), role="inout", zeroed=True)}, "y.zeroed: its role is `inout`"),
        ({"x": TensorRule(("n",), unordered=True)}, "x: `unordered` and `ties` say how an output is compared"),
        ({"i": TensorRule((1,), ties="z")}, "i.ties: `z` is no other tensor of the kernel; it has `x`, `y`"),
        ({"y": TensorRule((1,), ties="x")}, "y.ties: it holds float32, and indices are integers"),
        (
            {"i": TensorRule((5,), ties="x"), "x": TensorRule((2, "n"))},
            r"i.ties: \[5\] has no whole number of indices",
        ),
    ],
)
def test_a_rule_that_makes_no_sense_is_named(rules: dict[str, TensorRule], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        bind(Signature((VALUES, INDEX, OUT)), {"n": 4}, rules, {})


ARGMAX_HEAD = 'extern "C" void solve(const float* x, int* i, int rows, int columns)'
ARGMAX = """
#include <cmath>
HEAD {
    for (int r = 0; r < rows; r++) {
        int best = 0;
        for (int c = 1; c < columns; c++) if (x[r * columns + c] BETTER x[r * columns + best]) best = c;
        i[r] = best;
    }
}
""".replace("HEAD", ARGMAX_HEAD)
# Few different values, so that nearly every row has a tie.
ARGMAX_REFERENCE = """
import torch
def reference(x, i, rows, columns):
    return x.max(dim=1).indices
def inputs(seed, rows, columns):
    return {"x": torch.randint(0, 9, (rows, columns), generator=torch.Generator().manual_seed(seed)).float()}
"""


def argmax_problem(folder: Path, **says: object) -> Problem:
    (folder / "ref.py").write_text(ARGMAX_REFERENCE)
    signature = Signature(
        (pointer("x", const=True), pointer("i", "int32", const=False), integer("rows"), integer("columns"))
    )
    rules = {
        "x": TensorRule(("rows", "columns"), init="reference"),
        "i": TensorRule(("rows",), **says),  # type: ignore[arg-type]
    }
    case = bind(signature, {"rows": 200, "columns": 64}, rules, {})
    return Problem("argmax", signature, case, (), folder / "ref.py")


@contextmanager
def opened(problem: Problem, folder: Path) -> Iterator[Harness]:
    with Harness(problem, SETTINGS, Limits(call_s=2.0), folder / "cache") as harness:
        yield harness


def test_an_argmax_may_break_ties_its_own_way_and_wrong_answers_are_still_rejected(tmp_path: Path) -> None:
    first = compile_kernel(ARGMAX.replace("BETTER", ">"), tmp_path, "first")
    last = compile_kernel(ARGMAX.replace("BETTER", ">="), tmp_path, "last")
    least = compile_kernel(ARGMAX.replace("BETTER", "<"), tmp_path, "least")
    with opened(argmax_problem(tmp_path, ties="x"), tmp_path) as harness:
        assert set(harness.check_task(first).rejected) >= {"zeros", "constant", "half"}
        assert harness.evaluate(last).verdict == "pass"
        assert harness.compare(first, last).kind == "comparison"
        found = harness.evaluate(least)
        assert (found.verdict, "in values of x" in (found.reason or "")) == ("fail", True)
    with opened(argmax_problem(tmp_path), tmp_path) as harness:
        assert harness.evaluate(last).verdict == "fail" or harness.evaluate(first).verdict == "fail"


SUMS_HEAD = 'extern "C" void solve(const float* x, float* y, int n)'
ADDS = f"{SUMS_HEAD} {{ for (int i = 0; i < n; i++) y[i % 32] += x[i]; }}"
CLEARS = f"{SUMS_HEAD} {{ for (int i = 0; i < 32; i++) y[i] = 0; for (int i = 0; i < n; i++) y[i % 32] += x[i]; }}"
RETURNS = "def reference(x, y, n):\n    return x.view(-1, 32).sum(dim=0)\n"
ACCUMULATES = "def reference(x, y, n):\n    y += x.view(-1, 32).sum(dim=0)\n"


def sums_problem(folder: Path, reference: str, *, zeroed: bool) -> Problem:
    (folder / "ref.py").write_text(reference)
    signature = Signature((pointer("x", const=True), pointer("y", const=False), integer("n")))
    case = bind(signature, {"n": 32 * 40}, {"x": TensorRule(("n",)), "y": TensorRule((32,), zeroed=zeroed)}, {})
    return Problem("sums", signature, case, (), folder / "ref.py", Tolerance(1e-4, 1e-4))


@pytest.mark.parametrize("reference", [RETURNS, ACCUMULATES])
def test_a_zeroed_output_is_zero_before_every_call_of_every_kernel_and_for_the_reference(
    tmp_path: Path, reference: str
) -> None:
    """The one policy for atomics: the task says it, and it holds for the baseline and all candidates alike."""
    with opened(sums_problem(tmp_path, reference, zeroed=True), tmp_path) as harness:
        adds, clears = compile_kernel(ADDS, tmp_path, "adds"), compile_kernel(CLEARS, tmp_path, "clears")
        assert "zeros" in harness.check_task(adds).rejected
        for kernel in (adds, clears):
            found = harness.evaluate(kernel)
            assert (found.verdict, found.reason) == ("pass", None)
        assert harness.compare(adds, clears).kind == "comparison"


def test_without_the_rule_nobody_may_rely_on_zeros(tmp_path: Path) -> None:
    with opened(sums_problem(tmp_path, RETURNS, zeroed=False), tmp_path) as harness:
        harness.check_task(compile_kernel(CLEARS, tmp_path, "clears"))
        found = harness.evaluate(compile_kernel(ADDS, tmp_path, "adds"))
        assert (found.verdict, ", expected" in (found.reason or "")) == ("fail", True)
        with pytest.raises(TaskError, match="the baseline fails at the timed dims"):
            harness.check_task(compile_kernel(ADDS, tmp_path, "adds"))


DIVIDES_HEAD = 'extern "C" void solve(const float* x, float* y, int n)'
SIGNS = f"#include <cmath>\n{DIVIDES_HEAD} {{ for (int i = 0; i < n; i++) y[i] = x[i] / std::fabs(x[i]); }}"
FLUSHES = "#include <xmmintrin.h>\n" + SIGNS.replace(
    "{ for", "{ unsigned was = _mm_getcsr(); _mm_setcsr(was | 0x8040); for"
)
FLUSHES = FLUSHES.replace("; }", "; _mm_setcsr(was); }")


def test_a_kernel_that_flushes_what_the_baseline_divides_by_fails_and_a_baseline_that_does_so_is_not_asked(
    tmp_path: Path,
) -> None:
    (tmp_path / "ref.py").write_text("def reference(x, y, n):\n    return x / x.abs()\n")
    signature = Signature((pointer("x", const=True), pointer("y", const=False), integer("n")))
    case = bind(signature, {"n": 1000}, {"x": TensorRule(("n",)), "y": TensorRule(("n",))}, {})
    problem = Problem("signs", signature, case, (), tmp_path / "ref.py")
    signs, flushes = compile_kernel(SIGNS, tmp_path, "signs"), compile_kernel(FLUSHES, tmp_path, "flushes")
    with opened(problem, tmp_path) as harness:
        assert harness.check_task(signs).dropped_checks == ()
        found = harness.evaluate(flushes)
        assert found.verdict == "fail"
        assert "denormal inputs" in (found.reason or "")
        dropped = harness.check_task(flushes).dropped_checks
        assert [reason.partition(":")[0] for _, reason in dropped] == ["denormal inputs"]
        assert harness.evaluate(flushes).verdict == "pass"
