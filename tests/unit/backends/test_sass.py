"""SASS listings: what a user loses when one is misread is every verdict that rests on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from backends.sass import parse_sass
from backends.types import Function, Listing
from tests.sass import compiled, cubin, dump

RECORDED = Path(__file__).parents[2] / "data" / "sass" / "gemm_tiled.sass"
KERNELS = """
__device__ __noinline__ float halved(float x) {
    while (x > 1.0f) x = x * 0.5f - 0.25f;
    return x;
}
__global__ void rows(const float* x, float* y, int n) {
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < n; ++i) sum += halved(x[i]) / y[i];
    y[threadIdx.x] = sum;
}
extern "C" __global__ void cases(const int* x, float* y, int n) {
    for (int i = threadIdx.x; i < n; i += 32) {
        float v = y[i];
        switch (x[i]) {
            case 0: v = sinf(v); break;
            case 1: v = v * v; break;
            case 2: v = expf(v); break;
            case 3: v = sqrtf(v); break;
            case 4: v = tanhf(v); break;
            case 5: v = atanf(v); break;
            case 6: v = logf(v); break;
        }
        y[i] = v;
    }
}
extern "C" __global__ void lanes(const float* x, float* y, int n) {
    for (int i = threadIdx.x; i < n; i += 256) {
        float sum = x[i];
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
        if (threadIdx.x % 32 == 0) atomicAdd(&y[i / 1024], sum);
    }
}
extern "C" __global__ void straight(float* y) { y[threadIdx.x] = 1.0f; }
"""


def one(listing: Listing, name: str) -> Function:
    (found,) = (f for f in listing.functions if f.name.split("(")[0] == name and "[" not in f.name)
    return found


def depths(function: Function, *opcodes: str) -> set[int]:
    return {i.loop_depth for i in function.instructions if i.opcode.startswith(opcodes)}


def code(listing: Listing) -> Sequence[Sequence[tuple[int, str, str, int]]]:
    return [[(i.address, i.opcode, i.operands, i.loop_depth) for i in f.instructions] for f in listing.functions]


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    work = tmp_path_factory.mktemp("sass")
    return {arch: cubin(KERNELS, arch, work / arch) for arch in ("sm_75", "sm_80", "sm_90a", "sm_100a")}


def test_a_recorded_listing() -> None:
    """Names are readable, the hot loop is told from what surrounds it, padding is no code."""
    listing = parse_sass(RECORDED.read_text(encoding="utf-8"), "sm_90")
    (kernel,) = listing.functions
    assert listing.arch == "sm_90"
    assert kernel.name.startswith(("gemm_tiled(float const*", "_Z10gemm_tiled"))
    assert Counter(i.opcode for i in kernel.instructions if i.opcode in ("FFMA", "BAR.SYNC.DEFER_BLOCKING", "NOP")) == {
        "FFMA": 32,
        "BAR.SYNC.DEFER_BLOCKING": 2,
    }
    assert depths(kernel, "FFMA", "BAR", "LDG", "LDS", "STS") == {1}
    assert depths(kernel, "STG", "S2R", "EXIT") == {0}
    assert kernel.instructions[-1].opcode == "EXIT"
    branch = next(i for i in kernel.instructions if i.opcode == "BRA")
    assert (branch.address, branch.operands) == (0xB0, "@!P0 0x7e0")
    assert "/* 0x" not in listing.text


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_100a"])
def test_both_disassemblers_say_the_same(arch: str, binaries: dict[str, Path]) -> None:
    """CUDA kernels are read by cuobjdump, Triton's by nvdisasm: one method must not pass by the tool."""
    binary = binaries[arch]
    by_name, by_address = parse_sass(dump(binary, "nvdisasm"), arch), parse_sass(dump(binary), arch)
    assert by_name.arch == by_address.arch == arch
    assert code(by_name) == code(by_address)
    assert code(parse_sass(dump(binary, "nvdisasm", "-hex"), arch)) == code(by_name)
    assert any("halved" in f.name for f in by_name.functions)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_100a"])
def test_a_local_subroutine_is_a_function_of_its_own(arch: str, binaries: dict[str, Path]) -> None:
    """Read as one run, the slow path of a division would lie in no loop, or two calls to it would make one."""
    listing = parse_sass(dump(binaries[arch]), arch)
    kernel = one(listing, "rows" if any(f.name.startswith("rows(") for f in listing.functions) else "_Z4rowsPKfPfi")
    calls = [i for i in kernel.instructions if i.opcode.startswith("CALL")]
    assert calls
    assert {i.loop_depth for i in calls} == {1}
    names = {f.name for f in listing.functions}
    assert {i.target for i in calls} <= names
    assert all(f.instructions[-1].opcode.startswith(("RET", "BRA", "EXIT")) for f in listing.functions)
    helpers = [f for f in listing.functions if f.name.startswith(f"{kernel.name} [")]
    assert {1} == {max(i.loop_depth for i in f.instructions) for f in helpers if depths(f, "FFMA") >= {1}}
    assert depths(kernel, "STG") == {0}


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_100a"])
def test_the_cases_of_a_switch_are_in_the_loop_around_it(arch: str, binaries: dict[str, Path]) -> None:
    """cuobjdump does not say where a BRX goes."""
    kernel = one(parse_sass(dump(binaries[arch]), arch), "cases")
    assert depths(kernel, "BRX") == {1}
    assert 0 not in depths(kernel, "MUFU")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_handlers_of_parted_lanes_are_not_in_the_loop(arch: str, binaries: dict[str, Path]) -> None:
    """They lie behind the kernel and run once in a blue moon; counted in, the loop would seem twice as heavy."""
    kernel = one(parse_sass(dump(binaries[arch]), arch), "lanes")
    handler = min(int(i.operands.rpartition(" ")[2], 16) for i in kernel.instructions if i.opcode == "BRA.DIV")
    assert depths(kernel, "BRA.DIV") == {1}
    assert {i.loop_depth for i in kernel.instructions if i.address >= handler} == {0}
    assert depths(kernel, "SHFL") == ({1} if arch == "sm_80" else {0, 1})


def test_the_end_of_a_kernel_is_no_loop(binaries: dict[str, Path]) -> None:
    """ptxas ends every kernel in a jump to itself."""
    raw = dump(binaries["sm_90a"])
    assert "BRA 0x" in raw
    kernel = one(parse_sass(raw, "sm_90"), "straight")
    assert kernel.instructions[-1].opcode == "EXIT"
    assert {i.loop_depth for i in kernel.instructions} == {0}


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ("sm_80", "sm_80"),
        ("sm_90", "sm_90a"),
        ("sm_90a", "sm_90a"),
        ("sm_86", "sm_80"),
        ("sm_75", "sm_100a"),
        ("", "sm_100a"),
    ],
)
def test_of_many_cubins_the_one_that_runs_is_read(wanted: str, chosen: str, binaries: dict[str, Path]) -> None:
    """Compared as text, sm_100 comes before sm_89; counted together, every instruction would count three times."""
    text = "\n".join(dump(binaries[arch]) for arch in ("sm_100a", "sm_80", "sm_90a"))
    listing = parse_sass(text, wanted)
    assert listing.arch == chosen
    assert code(listing) == code(parse_sass(dump(binaries[chosen]), chosen))


def test_two_files_of_one_architecture_are_both_read(tmp_path: Path) -> None:
    first, second = (
        cubin(f'extern "C" __global__ void {name}(float* y) {{ *y = 1; }}', "sm_80", tmp_path / name)
        for name in ("first", "second")
    )
    assert [f.name for f in parse_sass(dump(first) + dump(second), "sm_80").functions] == ["first", "second"]


def test_a_listing_without_code_has_no_functions() -> None:
    ptx = "\nFatbin ptx code:\n================\narch = sm_80\ncode version = [9,0]\n"
    for text in ("", ptx):
        assert parse_sass(text, "sm_80") == Listing("sm_80", (), "")


OLD = """
	.headerflags	@"EF_CUDA_TEXMODE_UNIFIED EF_CUDA_64BIT_ADDRESS {flags} EF_CUDA_VIRTUAL_SM({flags})"
	.section	.nv.constant0.k,"a",@progbits
        /*0000*/ 	.byte	0x00, 0x00
	.section	.text.k,"ax",@progbits
k:
.text.k:
        /*0000*/                   MOV R1, c[0x0][0x28] ;   /* 0x00000a0000017a02 */
                                                            /* 0x000fe40000000f00 */
.L_x_1:
        /*0010*/              @!P1 EXIT ;
        /*0020*/                   BRA.U !UP0, `(.L_x_1) ;
        /*0030*/                   BRA `(k + 0x50) ;
        /*0040*/                   FADD R0, R0, R1 ;
        /*0050*/                   EXIT ;
.L_x_2:
        /*0060*/                   BRA `(.L_x_2);
        /*0070*/                   NOP;
"""


@pytest.mark.parametrize(
    ("flags", "arch"), [("EF_CUDA_SM86", "sm_86"), ("EF_CUDA_ACCELERATORS EF_CUDA_SM90", "sm_90a")]
)
def test_an_older_disassembler_says_its_architecture_in_flags(flags: str, arch: str) -> None:
    listing = parse_sass(OLD.replace("{flags}", flags), arch)
    (kernel,) = listing.functions
    assert listing.arch == arch
    assert [(i.opcode, i.operands, i.loop_depth) for i in kernel.instructions] == [
        ("MOV", "R1, c[0x0][0x28]", 0),
        ("EXIT", "@!P1", 1),
        ("BRA.U", "!UP0, 0x10", 1),
        ("BRA", "0x50", 0),
        ("FADD", "R0, R0, R1", 0),
        ("EXIT", "", 0),
    ]


def test_nothing_in_a_name_or_comment_is_an_instruction(tmp_path: Path) -> None:
    source = 'extern "C" __global__ void BRA_0x10_HMMA(float* y) { *y = 1; }'
    (kernel,) = compiled(source, "sm_80", tmp_path).functions
    assert kernel.name == "BRA_0x10_HMMA"
    assert not any("HMMA" in i.opcode or "HMMA" in i.operands for i in kernel.instructions)
