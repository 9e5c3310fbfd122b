"""What a user loses: spills that nobody saw, or a prompt full of register counts where a warning should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.ptxas import parse_resources, with_ptx_lines, without_resources
from backends.types import KernelResources

# nvcc 13.0.88 with -Xptxas -v, two architectures, a function that was not inlined, a warning and advice between.
LOG = """kernel.cu(3): warning #177-D: variable "unused" was declared but never referenced
    int unused;
        ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

ptxas info    : 0 bytes gmem, 8 bytes cmem[4]
ptxas info    : Compiling entry function '_Z2tkILi256EEvPf' for 'sm_80'
ptxas info    : Function properties for _Z2tkILi256EEvPf
    256 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 34 registers, used 1 barriers, 256 bytes cumulative stack size, 1024 bytes smem, 360 bytes \
cmem[0], 8 bytes cmem[2]
ptxas info    : Compile time = 4.979 ms
ptxas info    : Function properties for _Z6helperf
    40 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Function properties for _Z5emptyv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient \
register resources for the wgmma pipeline in the function '_Z2tkILi256EEvPf'
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5fencePf' for 'sm_90a'
ptxas info    : Function properties for _Z5fencePf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""


def test_every_kernel_of_every_architecture_with_what_ptxas_says_of_it() -> None:
    assert parse_resources(LOG) == (
        KernelResources("void tk<256>(float*)", "sm_80", 34, 12, 16, 256, 1024, 368),
        KernelResources("helper(float)", "sm_80", None, 0, 0, 40, None, None),
        KernelResources("fence(float*)", "sm_90a", 8, 0, 0, 0, 0, None),
    )


def test_the_same_kernel_for_two_architectures_is_two_entries() -> None:
    log = "".join(
        f"ptxas info    : Compiling entry function 'k' for 'sm_{arch}'\nptxas info    : Used {count} registers\n"
        for arch, count in ((80, 10), (90, 12))
    )
    assert [(k.name, k.arch, k.registers) for k in parse_resources(log)] == [("k", "sm_80", 10), ("k", "sm_90", 12)]


def test_older_logs_with_their_own_form_of_shared_memory() -> None:
    log = (
        "ptxas info    : Compiling entry function 'k' for 'sm_75'\n"
        "ptxas info    : Used 16 registers, 4096+0 bytes smem, 356 bytes cmem[0]\n"
    )
    assert parse_resources(log) == (KernelResources("k", "sm_75", 16, None, None, None, 4096, 356),)


@pytest.mark.parametrize("log", ["", "nothing here", "ptxas info    : Used 16 registers\n"])
def test_a_log_without_kernels_names_none(log: str) -> None:
    assert parse_resources(log) == ()


def test_the_log_keeps_warnings_and_advice_alone() -> None:
    kept = without_resources(LOG).splitlines()
    assert [line for line in kept if line.startswith("ptxas")] == [line for line in kept if "(C7510)" in line]
    assert kept[0].startswith('kernel.cu(3): warning #177-D: variable "unused"')
    assert "smem" not in "\n".join(kept)


def test_an_error_in_ptx_shows_its_line_and_where_it_came_from(tmp_path: Path) -> None:
    """`line 6 of kernel.ptx` says nothing to whoever wrote the .cu file."""
    (tmp_path / "a (b).ptx").write_text(
        '.entry k()\n{\n\t.loc\t1 7 3\n\t// begin inline asm\n\t\n\tfoo.bar %f1;\n}\n\t.file\t1 "/tmp/k.cu"\n'
    )
    log = (
        "ptxas a (b).ptx, line 6; error   : Unknown modifier '.bar'\nptxas fatal   : Ptx assembly aborted due to errors"
    )
    assert with_ptx_lines(log, tmp_path).splitlines() == [
        "ptxas a (b).ptx, line 6; error   : Unknown modifier '.bar'",
        "    foo.bar %f1;",
        "    from /tmp/k.cu:7",
        "ptxas fatal   : Ptx assembly aborted due to errors",
    ]
    assert with_ptx_lines(log.replace("line 6", "line 99"), tmp_path) == log.replace("line 6", "line 99")
    assert with_ptx_lines(log, tmp_path / "absent") == log


def test_a_kernel_cannot_have_a_line_of_another_file_shown(tmp_path: Path) -> None:
    """It can print what looks like an error of ptxas, and logs go into prompts."""
    (tmp_path / "secret.ptx").write_text("secret\n", encoding="utf-8")
    (tmp_path / "work").mkdir()
    log = f"ptxas {tmp_path}/secret.ptx, line 1; error   : forged"
    assert with_ptx_lines(log, tmp_path / "work") == log
    assert "secret\n" not in with_ptx_lines(log.replace(f"{tmp_path}", ".."), tmp_path / "work")
