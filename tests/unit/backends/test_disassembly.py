"""What a user loses: the machine-code check would count the runtime's instructions, or miss those in the hot loop."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from backends.cpp import CppBackend
from backends.disassembly import parse_objdump
from backends.types import BuildSpec, Built, Function, Instruction, Listing

GEMM = """#include <cmath>
#include <algorithm>
extern "C" void solve(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int N) {
  for (int i = 0; i < N; ++i)
    for (int k = 0; k < N; ++k) {
      float a = A[i * N + k];
      for (int j = 0; j < N; ++j) C[i * N + j] += a * B[k * N + j];
    }
  for (int i = 0; i < N; ++i) C[i] = expf(C[i]);
  std::sort(C, C + N, [](float x, float y) { return x > y; });
}
"""
x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="names x86-64 instructions")


def listing(folder: Path, text: str, flags: tuple[str, ...] = ()) -> Listing:
    source = folder / "kernel.cpp"
    source.write_text(text, encoding="utf-8")
    backend = CppBackend()
    built = backend.build(source, BuildSpec(flags=flags), folder / "cache")
    assert isinstance(built, Built), built
    found = backend.disassemble(built)
    assert found is not None
    return found


def function(found: Listing, name: str) -> Function:
    return next(f for f in found.functions if f.name == name)


@x86
def test_fma_of_the_inner_loop_is_three_deep_and_vectorised(tmp_path: Path) -> None:
    fma = [i for i in function(listing(tmp_path, GEMM), "solve").instructions if i.opcode.startswith("vfmadd")]
    assert max(i.loop_depth for i in fma) == 3
    assert any("%ymm" in i.operands and i.loop_depth == 3 for i in fma)


def test_call_left_in_a_loop_names_its_target(tmp_path: Path) -> None:
    calls = [i for i in function(listing(tmp_path, GEMM), "solve").instructions if i.target == "expf"]
    assert [i.loop_depth for i in calls] == [1]


def test_only_the_kernels_own_functions_are_listed(tmp_path: Path) -> None:
    found = listing(tmp_path, GEMM)
    names = [f.name for f in found.functions]
    assert "solve" in names
    assert any(name.startswith("void std::__introsort_loop<") for name in names)
    assert not [n for n in names if n in {"_init", "_fini", "frame_dummy", "register_tm_clones"} or "@plt" in n]
    assert found.arch == platform.machine()
    assert "<solve>:" in found.text
    assert "frame_dummy" not in found.text


def test_outlined_parallel_region_is_the_kernels_own(tmp_path: Path) -> None:
    text = """extern "C" void solve(float* x, int n) {
    #pragma omp parallel for
      for (int i = 0; i < n; ++i) x[i] = x[i] * x[i] + 1.0f;
    }"""
    found = listing(tmp_path, text, ("-fopenmp",))
    outlined = next(f for f in found.functions if "omp" in f.name)
    assert max(i.loop_depth for i in outlined.instructions) >= 1


def test_straight_line_kernel_has_no_loop(tmp_path: Path) -> None:
    found = listing(tmp_path, 'extern "C" void solve(float* x) { if (x) x[0] = x[1]; }')
    assert {i.loop_depth for i in function(found, "solve").instructions} == {0}


ODD = """
a.so:     file format elf64-x86-64


Disassembly of section .plt:

0000000000001020 <expf@plt>:
    1020:\tjmp    *0x2fca(%rip)        # 3ff0 <expf@GLIBC_2.27>

Disassembly of section .text:

0000000000001040 <frame_dummy>:
    1040:\tret

0000000000001050 <void axpy<4>(std::vector<float, std::allocator<float> >&)>:
    1050:\tnotrack jmp *%rax
    1053:\trep stos %al,%es:(%rdi)
    1055:\tlock xadd %eax,(%rdx)
    1059:\tbnd jmp 1053 <void axpy<4>(std::vector<float, std::allocator<float> >&)+0x3>
    105c:\t(bad)
    105d:\tcall   *0x2f00(%rip)        # 3f68 <expf@GLIBC_2.27>
    1063:\tcall   1020 <expf@plt>
    1068:\tvmovaps 0xff1(%rip),%ymm1        # 2060 <_fini+0xd00>
    1070:\tjmp    1020 <expf@plt>
    1075:\tdata16 cs nopw 0x0(%rax,%rax,1)
    1080:\tnopl   0x0(%rax)
\t...
"""


def test_odd_lines_of_objdump() -> None:
    (only,) = parse_objdump(ODD).functions
    assert only.name == "void axpy<4>(std::vector<float, std::allocator<float> >&)"
    assert only.instructions == (
        Instruction(0x1050, "jmp", "*%rax", 0),
        Instruction(0x1053, "stos", "%al,%es:(%rdi)", 1),
        Instruction(0x1055, "xadd", "%eax,(%rdx)", 1),
        Instruction(0x1059, "jmp", "1053", 1, only.name),
        Instruction(0x105C, "(bad)", "", 0),
        Instruction(0x105D, "call", "*0x2f00(%rip)", 0, "expf"),
        Instruction(0x1063, "call", "1020", 0, "expf"),
        Instruction(0x1068, "vmovaps", "0xff1(%rip),%ymm1", 0),
        Instruction(0x1070, "jmp", "1020", 0, "expf"),
    )


SWITCH = """
a.so:     file format elf64-x86-64

Disassembly of section .text:

0000000000001000 <solve>:
    1000:\txor    %eax,%eax
    1002:\tcmp    $0x5,%dl
    1005:\tja     1010 <solve+0x10>
    1007:\tnotrack jmp *%rdx
    100a:\tvaddss %xmm0,%xmm1,%xmm1
    100e:\tjmp    1010 <solve+0x10>
    1010:\tdec    %ecx
    1012:\tjne    1002 <solve+0x2>
    1014:\tret
    1015:\tvmulss %xmm0,%xmm1,%xmm1
    1019:\tjmp    1010 <solve+0x10>
"""


def test_cases_of_a_switch_belong_to_the_loop_around_it() -> None:
    (only,) = parse_objdump(SWITCH).functions
    depths = {i.opcode: i.loop_depth for i in only.instructions}
    assert (depths["vaddss"], depths["vmulss"]) == (1, 1)
    assert (depths["xor"], depths["ret"]) == (0, 0)


def test_a_kernel_full_of_computed_jumps_is_read() -> None:
    """Each may go to each block: 20,000 of them would fill the memory of the run with edges."""
    jumps = "".join(f"    {0x2000 + 3 * n:x}:\tjmp    *%rax\n" for n in range(20_000))
    (only,) = parse_objdump(SWITCH.split("    1000:")[0] + jumps).functions
    assert len(only.instructions) == 20_000


AARCH64 = """
a.so:     file format elf64-littleaarch64

Disassembly of section .text:

00000000000006f0 <call_weak_fn>:
 6f0:\tret

0000000000000700 <solve>:
 700:\tcbz\tw1, 71c <solve+0x1c>
 704:\tfmla\tv0.4s, v1.4s, v2.4s
 708:\tbl\t5c0 <expf@plt>
 70c:\tsubs\tw1, w1, #0x1
 710:\tb.ne\t704 <solve+0x4>  // b.any
 714:\ttbz\tw0, #3, 71c <solve+0x1c>
 718:\tb\t5d0 <sinf@plt>
 71c:\tret
"""


def test_arm_loops_and_calls() -> None:
    found = parse_objdump(AARCH64)
    (only,) = found.functions
    assert found.arch == "aarch64"
    assert [(i.opcode, i.loop_depth, i.target) for i in only.instructions] == [
        ("cbz", 0, "solve"),
        ("fmla", 1, None),
        ("bl", 1, "expf"),
        ("subs", 1, None),
        ("b.ne", 1, "solve"),
        ("tbz", 0, "solve"),
        ("b", 0, "sinf"),
        ("ret", 0, None),
    ]


def test_empty_output_is_an_empty_listing() -> None:
    assert parse_objdump("") == Listing("unknown", (), "")
