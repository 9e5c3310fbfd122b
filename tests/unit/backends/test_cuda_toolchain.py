"""What a user loses: a toolkit that is there and not found, or a broken machine blamed on the kernels."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from backends.cuda_toolchain import escaped, find_cuda_tool, find_toolkit
from backends.types import ToolchainError

ROOT = Path(__file__).resolve().parents[3]
KERNEL = """__global__ void k(float* b) { b[0] = 1; }
extern "C" void solve(float* b) { k<<<1, 1>>>(b); }
"""
BUILD = """import sys
from pathlib import Path
from backends.cuda import CudaBackend
from backends.types import BuildSpec, ToolchainError
try:
    built = CudaBackend().build(Path(sys.argv[1]), BuildSpec(arch=sys.argv[3]), Path(sys.argv[2]))
    listing = CudaBackend().disassemble(built)
    print(built.kind, built.command[0], [k.arch for k in built.resources], listing and listing.arch)
except ToolchainError as error:
    print("ToolchainError", error)
"""


def packaged_nvcc() -> Path:
    """The nvcc that PyPI ships, a part of the development extra."""
    found = importlib.util.find_spec("nvidia")
    folders = list(found.submodule_search_locations or ()) if found else []
    return next(nvcc for folder in folders for nvcc in Path(folder).glob("cu[0-9]*/bin/nvcc"))


def build(folder: Path, env: Mapping[str, str], arch: str = "sm_90", limit: str = "") -> str:
    """What a build prints in a fresh interpreter with nothing in its environment but `env`."""
    source = folder / "my kernel (1).cu"
    source.write_text(KERNEL, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", limit + BUILD, str(source), str(folder / "cache"), arch],
        env={"PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_packaged_compiler_works_from_an_empty_environment(tmp_path: Path) -> None:
    """A machine without a CUDA toolkit has nothing else."""
    nvcc = packaged_nvcc()
    env = {"CUDACXX": str(nvcc), "PATH": "/nonexistent", "TMPDIR": "/nonexistent", "LANG": "de_DE"}
    assert build(tmp_path, env) == f"built {nvcc} ['sm_90'] sm_90\n"


def test_a_toolkit_named_by_its_folder_comes_before_others(tmp_path: Path) -> None:
    root = tmp_path / "cuda (mine)"
    nvcc = script(root / "bin" / "nvcc", f'exec "{packaged_nvcc()}" "$@"')
    assert build(tmp_path, {"CUDA_HOME": str(root)}) == f"built {nvcc} ['sm_90'] sm_90\n"


def test_a_lower_limit_of_the_machines_owner_is_no_reason_not_to_build(tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
    assert build(tmp_path, {}, limit=limit).startswith("built /")


@pytest.mark.parametrize(
    ("env", "arch", "said"),
    [
        (
            {"CUDACXX": "no-such-nvcc"},
            "sm_90",
            "the compiler in CUDACXX, `no-such-nvcc`, was not found; install the CUDA",
        ),
        (
            {"CUDACXX": "/bin/false"},
            "sm_90",
            "/bin/false --version failed (exit 1): ",
        ),
        ({"NVCC_CCBIN": "/no/g++"}, "sm_90", "the compiler in NVCC_CCBIN, `/no/g++`, was not found"),
        ({"CXX": "no-such-g++"}, "sm_90", "the compiler in CXX, `no-such-g++`, was not found"),
        ({}, "sm_60", "gpu architecture 'compute_60'; use a CUDA toolkit that knows it, or another architecture"),
    ],
)
def test_what_is_missing_is_the_machines_fault_and_says_what_to_do(
    env: dict[str, str], arch: str, said: str, tmp_path: Path
) -> None:
    answer = build(tmp_path, env, arch)
    assert answer.startswith("ToolchainError ")
    assert said in answer
    assert answer.count("\n") == 1


def test_a_host_compiler_too_new_is_the_machines_fault(tmp_path: Path) -> None:
    newer = script(tmp_path / "new" / "g++", 'exec /usr/bin/g++ -U__GNUC__ -D__GNUC__=99 "$@"')
    answer = build(tmp_path, {"NVCC_CCBIN": str(newer)})
    assert answer.startswith("ToolchainError ")
    assert "unsupported GNU version" in answer
    assert "point NVCC_CCBIN at a C++ compiler that this toolkit supports" in answer


def test_a_full_disk_is_the_machines_fault(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    source = small / "kernel.cu"
    mount = 'mount -t tmpfs -o size=512k none "$1" && shift && exec "$@"'
    unshare = shutil.which("unshare")
    own_mounts = [str(unshare), "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", str(small)]
    if unshare is None or subprocess.run([*own_mounts, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("this kernel gives no private mounts to mount a small disk in")
    source = tmp_path / "kernel.cu"
    source.write_text(KERNEL, encoding="utf-8")
    done = subprocess.run(
        [*own_mounts, sys.executable, "-c", BUILD, str(source), str(small / "cache"), "sm_90"],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.startswith("ToolchainError no space left on the disk that holds"), done


def test_a_disassembler_that_fails_on_a_kernel_gives_no_listing(tmp_path: Path) -> None:
    nvcc = script(tmp_path / "bin" / "nvcc", f'exec "{packaged_nvcc()}" "$@"')
    script(tmp_path / "bin" / "cuobjdump", "kill -SEGV $$")
    assert build(tmp_path, {"CUDACXX": str(nvcc)}) == f"built {nvcc} ['sm_90'] None\n"


def test_a_cache_folder_that_nvccs_shell_would_read_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "$HOME `id`"
    folder.mkdir()
    assert "nvcc cannot work in a folder of that name" in build(folder, {})


def test_the_tools_come_with_versions() -> None:
    toolkit = find_toolkit()
    assert toolkit.version[0].isdigit()
    assert (toolkit.include / "cuda_runtime.h").is_file()
    for name in ("cuobjdump", "nvdisasm"):
        program = find_cuda_tool(name)
        assert program is not None
        assert program.is_absolute()
        assert os.access(program, os.X_OK)
    assert find_cuda_tool("no-such-tool") is None


@pytest.mark.parametrize(
    "value", ['"a$HOME`id`b"', "1,2", '"a\\n"', '"a,b\\\\c"', "'\\0'", '"; echo x; "', "(1<<3)&~1"]
)
def test_a_macro_arrives_as_it_was_given(value: str, tmp_path: Path) -> None:
    """nvcc reads backslashes and commas, and its shell dollars and backticks."""
    source = tmp_path / "unit.cu"
    source.write_text("marker VALUE\n")
    argv = [str(find_toolkit().nvcc), "-E", f"-DVALUE={escaped(value)}", str(source)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"marker {value}"


def test_an_unusable_compiler_is_told_by_the_toolchain_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDACXX", "/no/such/nvcc")
    with pytest.raises(ToolchainError, match="was not found"):
        find_toolkit()
