"""GPU kernels compiled and disassembled for tests, by whatever nvcc this machine has."""

from __future__ import annotations

from pathlib import Path

from backends.cuda_toolchain import find_cuda_tool, find_toolkit, host_arguments, run_nvcc
from backends.process import run_process
from backends.sass import parse_sass
from backends.types import Listing
from backends.walls import Walls


def cubin(source: str, arch: str, work: Path, *flags: str) -> Path:
    """A CUDA source as machine code for one architecture."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "probe.cu").write_text(source, encoding="utf-8")
    toolkit = find_toolkit()
    target = f"-arch={arch}"
    arguments = ["-cubin", "-std=c++17", target, *host_arguments(toolkit.host), *flags, "-o", "probe.cubin", "probe.cu"]
    walls = Walls(writable=(work,), readable=tuple(Path(flag[2:]) for flag in flags if flag.startswith("-I")))
    done = run_nvcc(toolkit, arguments, walls, work=work, target=target, timeout_s=300.0)
    assert done.returncode == 0, done.stderr
    return work / "probe.cubin"


def dump(binary: Path, tool: str = "cuobjdump", *flags: str) -> str:
    """What a disassembler prints of it."""
    program = find_cuda_tool(tool)
    assert program is not None
    given = flags or ({"cuobjdump": "--dump-sass", "nvdisasm": "-c"}[tool],)
    done = run_process([str(program), *given, str(binary)], timeout_s=120.0, max_output_bytes=256 << 20)
    assert done.returncode == 0, done.stderr
    return done.stdout


def compiled(source: str, arch: str, work: Path, *flags: str) -> Listing:
    """Kernels of a CUDA source as the disassembler shows them."""
    return parse_sass(dump(cubin(source, arch, work, *flags)), arch)
