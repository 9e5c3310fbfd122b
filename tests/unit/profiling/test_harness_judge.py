"""Right and wrong: a judge that misses one kind of wrong answer passes every kernel that is wrong that way."""

from __future__ import annotations

import math
import os
import random
from pathlib import Path

import pytest
import torch

from profiling.harness.arena import Arena, Layout, RandomBytes, memory_available
from profiling.harness.inputs import CHECKED, Draw, InputMaker, Pools
from profiling.harness.judge import Exactness, Judgement, judge
from profiling.harness.memory import Host
from profiling.harness.runner_build import build_flush
from profiling.scalar_values import scalar_word
from profiling.types import Case, Scalar, Tensor, Tolerance

TIGHT = Tolerance(atol=1e-4, rtol=1e-3)
CASE = Case({}, (Tensor("y", (3, 100_000), "float32", "out"),))


def judged(change: float | None, at: tuple[int, int] = (2, 70_000), exact: Exactness | None = None) -> Judgement:
    expected = torch.randn(3, 100_000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    output = expected.to(torch.float32)
    if change is not None:
        output[at] = change
    return judge(CASE, {"y": output}, {"y": expected}, TIGHT, {"y": exact} if exact else None)


def test_a_right_answer_is_right() -> None:
    assert judged(None).reason is None


@pytest.mark.parametrize("value", [9.0, math.nan, math.inf, -math.inf])
def test_one_wrong_element_of_many_is_found_and_named(value: float) -> None:
    reason = judged(value).reason
    assert reason is not None
    assert reason.startswith(f"y[2,70000] is {value:.9g}, expected ")


def test_special_values_must_be_where_the_reference_has_them() -> None:
    expected = torch.tensor([1.0, math.nan, math.inf, -math.inf, 1e300], dtype=torch.float64)
    case = Case({}, (Tensor("y", (5,), "float32", "out"),))
    same = expected.to(torch.float32)
    assert judge(case, {"y": same}, {"y": expected}, TIGHT, None).reason is None
    for index in range(1, 5):
        other = same.clone()
        other[index] = 1.0
        assert (judge(case, {"y": other}, {"y": expected}, TIGHT, None).reason or "").startswith(f"y[{index}] is 1")
    swapped = torch.tensor([1.0, math.nan, -math.inf, math.inf, math.inf])
    assert (judge(case, {"y": swapped}, {"y": expected}, TIGHT, None).reason or "").startswith("y[2] is -inf")


def test_a_kernel_must_be_about_as_exact_as_the_baseline() -> None:
    """Half precision hides inside a loose tolerance: the norm of all errors does not."""
    expected = torch.randn(3, 100_000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    loose = Tolerance(atol=0.1, rtol=0.1)
    halves = {"y": expected.to(torch.float16).to(torch.float32)}
    exact = {"y": Exactness(1e-7, 500.0)}
    assert judge(CASE, halves, {"y": expected}, loose, None).reason is None
    assert "less exact" in (judge(CASE, halves, {"y": expected}, loose, exact).reason or "")
    assert judge(CASE, {"y": expected.float()}, {"y": expected}, loose, exact).reason is None


def test_no_kernel_is_asked_to_be_luckier_than_the_baseline() -> None:
    """Where rounding alone comes near to the tolerance, every tenth honest kernel would fail on some element."""
    case = Case({}, (Tensor("y", (2,), "float32", "out"),))
    expected = {"y": torch.tensor([1.0, 1000.0], dtype=torch.float64)}
    tolerance = Tolerance(atol=1e-3, rtol=0.0)
    learned = judge(case, {"y": torch.tensor([1.0009, 1000.0])}, expected, tolerance, None)
    assert 0.85 < learned.shares["y"] < 0.95
    baseline = {"y": Exactness(1e-6, 1e3, learned.shares["y"])}
    assert judge(case, {"y": torch.tensor([1.002, 1000.0])}, expected, tolerance, baseline).reason is None
    assert judge(case, {"y": torch.tensor([1.005, 1000.0])}, expected, tolerance, baseline).reason is not None
    exact = {"y": Exactness(1e-6, 1e3, 0.1)}
    assert judge(case, {"y": torch.tensor([1.002, 1000.0])}, expected, tolerance, exact).reason is not None


def test_an_output_that_cancels_is_measured_by_its_common_size() -> None:
    """A sum that happens to be near zero has a huge relative error in any order of adding: no kernel is to blame."""
    case = Case({}, (Tensor("y", (1,), "float32", "out"),))
    off = {"y": torch.tensor([1e-5])}
    near_zero = {"y": torch.tensor([2e-5], dtype=torch.float64)}
    assert judge(case, off, near_zero, TIGHT, {"y": Exactness(1e-7, 1e3)}).reason is None
    assert judge(case, off, near_zero, TIGHT, {"y": Exactness(1e-7, 0.0)}).reason is not None


def test_integers_are_exact() -> None:
    case = Case({}, (Tensor("y", (4,), "int64", "out"),))
    large = torch.tensor([2**62, 1, 2, 3])
    assert judge(case, {"y": large}, {"y": large.clone()}, TIGHT, None).reason is None
    assert "y[0] is" in (judge(case, {"y": large + torch.tensor([1, 0, 0, 0])}, {"y": large}, TIGHT, None).reason or "")


def test_no_two_calls_see_the_same_inputs_and_one_draw_makes_them_again() -> None:
    """A kernel that remembers content must never meet it twice; the judge must meet it again."""
    case = Case({}, (Tensor("x", (40, 50), "float32", "in"), Tensor("k", (2000,), "int32", "in")))
    maker = InputMaker(case, None, Pools(random.Random(1)))
    for distribution in CHECKED:
        first, again, other = (maker.make(Draw(seed, distribution)) for seed in (5, 5, 6))
        assert torch.equal(first["x"], again["x"])
        assert not torch.equal(first["x"], other["x"])
        assert not torch.equal(first["k"], other["k"])
        assert bool(first["x"].isfinite().all())
    spike = maker.make(Draw(7, "spike"))["x"].abs().flatten().sort().values
    assert float(spike[-1]) > 100 * float(spike[-2]) / 10
    rows = maker.make(Draw(7, "constant rows"))["x"]
    assert torch.equal(rows, rows[:, :1].expand_as(rows))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "float8_e5m2"])
def test_subnormal_numbers_of_a_tensors_own_type_stand_among_normal_ones(dtype: str) -> None:
    """A kernel that flushes them divides by zero where the baseline does not."""
    case = Case({}, (Tensor("x", (30, 40), dtype, "in"), Tensor("u", (1200,), dtype, "in", "uniform")))
    made = InputMaker(case, None, Pools(random.Random(1))).make(Draw(5, "denormal"))
    for name, x in made.items():
        wide = x.to(torch.float64).abs()
        small = wide < torch.finfo(x.dtype).smallest_normal
        assert 0.3 < float(small.to(torch.float64).mean()) < 0.7, name
        assert bool((wide > 0).all())
    assert bool((made["u"].to(torch.float64) > 0).all())
    assert bool((made["x"].to(torch.float64) < 0).any())


def test_guards_begin_with_the_first_byte_after_a_tensor_and_inputs_are_watched(tmp_path: Path) -> None:
    case = Case({}, (Tensor("x", (7,), "float32", "in"), Tensor("y", (7,), "float32", "out")))
    layout = Layout.of(case)
    host = Host(build_flush(tmp_path), memory_available)
    arena = Arena(layout, 2, RandomBytes(random.Random(1)), host)
    x = torch.arange(7, dtype=torch.float32)
    arena.stage(1, {"x": x})
    assert arena.damage(1) is None
    poison = arena.outputs(1)["y"].view(torch.int32)
    arena.stage(1, {"x": x})
    assert not torch.equal(poison, arena.outputs(1)["y"].view(torch.int32))
    memory = torch.frombuffer(bytearray(arena.image(1)), dtype=torch.uint8)
    place = layout.places[1]
    assert place.offset % 64 == 0
    assert place.end - place.offset - place.size < 64
    assert memory.numel() == layout.slot_bytes
    arena.close()


def test_a_changed_byte_is_found_anywhere_in_a_large_input(tmp_path: Path) -> None:
    """A kernel that overwrites gigabytes of its input must be told so, not end in a search that has no room."""
    n = (1 << 26) + 1000
    case = Case({}, (Tensor("x", (n,), "int8", "in"), Tensor("y", (1,), "int8", "out")))
    arena = Arena(Layout.of(case), 1, RandomBytes(random.Random(1)), Host(build_flush(tmp_path), memory_available))
    arena.stage(0, {"x": torch.zeros(n, dtype=torch.int8)})
    place = arena.layout.places[0]
    os.pwrite(arena.fd, b"\1\1", place.offset + n - 2)
    assert arena.damage(0) == f"changed its input x[{n - 2}]"
    arena.close()


def test_scalars_keep_all_their_bits() -> None:
    assert scalar_word(Scalar("n", "int64", -1)) == 2**64 - 1
    assert scalar_word(Scalar("n", "uint64", 2**63 + 5)) == 2**63 + 5
    assert scalar_word(Scalar("a", "float32", 1.0)) == 0x3F800000
    assert scalar_word(Scalar("b", "bool", True)) == 1
