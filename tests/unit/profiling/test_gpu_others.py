"""What a user loses when other GPUs are chosen wrong: a GPU that stays idle, or kernels ranked across two models."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backends.types import ToolchainError
from profiling.device import helper_cores
from profiling.gpu_device import GpuFacts
from profiling.gpu_others import pick_others

HOME = GpuFacts(index=0, uuid="GPU-aaaa", name="NVIDIA H200", arch="sm_90")
SECOND = replace(HOME, index=1, uuid="GPU-bbbb")
THIRD = replace(HOME, index=2, uuid="GPU-cccc")
OLDER = replace(HOME, index=3, uuid="GPU-dddd", name="NVIDIA A100", arch="sm_80")
ALL = (HOME, SECOND, THIRD, OLDER)


def test_all_are_those_of_one_model_that_are_let_through() -> None:
    assert pick_others(HOME, (), ALL, None) == (SECOND, THIRD)
    assert pick_others(HOME, (), ALL, "0,2,3") == (THIRD,)
    assert pick_others(HOME, (), (HOME, "fell off the bus", THIRD), None) == (THIRD,)
    assert pick_others(HOME, (), (HOME,), None) == ()


def test_those_that_are_named_are_taken_once_each() -> None:
    assert pick_others(HOME, (0, 2), ALL, None) == (THIRD,)
    assert pick_others(HOME, (0, 1, "GPU-bbbb"), ALL, None) == (SECOND,)
    assert pick_others(SECOND, (0, 1), ALL, "1,2") == (THIRD,)


def test_one_of_another_model_is_refused_by_name() -> None:
    with pytest.raises(ToolchainError, match=r"GPU 3 is a NVIDIA A100 and GPU 0 a NVIDIA H200"):
        pick_others(HOME, (0, 3), ALL, None)
    with pytest.raises(ToolchainError, match="GPU 4 is not there"):
        pick_others(HOME, (0, 4), ALL, None)


def test_slices_of_a_gpu_are_not_spread_over() -> None:
    sliced = replace(SECOND, mig=True)
    assert pick_others(HOME, (), (HOME, sliced), None) == ()
    with pytest.raises(ToolchainError, match="MIG"):
        pick_others(HOME, (1,), (HOME, sliced), None)


@pytest.mark.parametrize(
    ("helpers", "spare", "shares"),
    [
        (0, 8, ()),
        (1, 23, ((100, 109),)),  # two GPUs on 32 cores: the rest is for builds
        (3, 55, ((100, 109), (109, 118), (118, 127))),
        (2, 8, ((100, 104), (104, 108))),
        (2, 5, ((100, 100), (100, 100))),
        (1, 0, ((100, 100),)),
    ],
)
def test_each_further_gpu_gets_cores_of_its_own_or_none_does(
    helpers: int, spare: int, shares: tuple[tuple[int, int], ...]
) -> None:
    found = helper_cores(helpers, range(100, 100 + spare))
    assert found == tuple(tuple(range(*share)) for share in shares)
