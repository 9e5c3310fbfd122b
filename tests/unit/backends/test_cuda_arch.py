"""What a user loses: a kernel that cannot be built, or builds and traps, for want of one letter."""

from __future__ import annotations

import pytest

from backends.cuda_arch import choose_target, gencode, specific_target
from backends.types import SourceError

PLAIN = 'extern "C" void solve(float* b) { k<<<1, 1>>>(b); }'
WGMMA = 'asm volatile("wgmma.fence.sync.aligned;\\n" ::: "memory");'


@pytest.mark.parametrize(
    ("arch", "source", "target"),
    [
        ("sm_80", PLAIN, "sm_80"),
        ("sm_90", PLAIN, "sm_90"),
        ("sm_90", WGMMA, "sm_90a"),
        ("sm_90", "#include <cute/tensor.hpp>", "sm_90a"),
        ("sm_90", "#if defined(__CUDA_ARCH_FEAT_SM90_ALL)", "sm_90a"),
        ("sm_89", "#include <cute/tensor.hpp>", "sm_89"),
        ("sm_100", 'asm("tcgen05.alloc");', "sm_100a"),
        ("sm_103", 'asm("tcgen05.alloc");', "sm_103a"),
        ("sm_120", 'asm("mma.sync.kind::mxf4");', "sm_120a"),
        ("sm_90a", PLAIN, "sm_90a"),
        ("sm_100f", WGMMA, "sm_100f"),
        ("90", PLAIN, "sm_90"),
        ("9.0", WGMMA, "sm_90a"),
        ("12.1", PLAIN, "sm_121"),
        ("compute_100a", PLAIN, "sm_100a"),
        ("", PLAIN, "sm_80"),
        ("", WGMMA, "sm_90a"),
        ("", "__global__ void __cluster_dims__(2, 1, 1) k();", "sm_90"),
        ("", 'asm("tcgen05.alloc");', "sm_100a"),
        ("", "using A = cutlass::arch::Sm100; #include <cutlass/cutlass.h>", "sm_100a"),
    ],
)
def test_the_suffix_is_there_where_it_is_needed_and_only_there(arch: str, source: str, target: str) -> None:
    assert choose_target(arch, source) == target


@pytest.mark.parametrize("arch", ["hopper", "sm_9", "sm_1000", "sm_90b", "auto", "x86_64"])
def test_what_is_no_architecture_says_how_to_write_one(arch: str) -> None:
    with pytest.raises(SourceError, match=rf"architecture `{arch}` is unknown; write it as `sm_90`"):
        choose_target(arch, PLAIN)


def test_a_feature_that_no_word_gave_away_is_tried_once_more() -> None:
    lacking = "ptxas k.ptx, line 40; error   : Feature '.NaN' not supported on .target 'sm_100'\n"
    assert specific_target("sm_100", lacking) == "sm_100a"
    assert specific_target("sm_100a", lacking) is None
    assert specific_target("sm_89", lacking) is None
    assert specific_target("sm_90", "ptxas k.ptx, line 28; error   : Unknown modifier '.bar'\n") is None
    assert specific_target("sm_90", 'kernel.cu(3): error: no member "target"') is None


def test_code_is_made_for_the_device_alone() -> None:
    assert gencode("sm_90a") == "-gencode=arch=compute_90a,code=sm_90a"
