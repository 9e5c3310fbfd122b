"""What a user loses: CUTLASS kernels that do not build, or trap on the GPU, though the headers are there."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from backends.cuda import CudaBackend
from backends.cutlass import CutlassBackend
from backends.cutlass_headers import find_cutlass
from backends.registry import detect
from backends.types import BuildSpec, Built, Rejected, ToolchainError

VARIABLES = ("CUTLASS_PATH", "CUTLASS_INCLUDE_DIR", "CUTLASS_DIR", "CUTLASS_HOME")
SPEC = BuildSpec(arch="sm_90")
# The lightest header of CUTLASS that still brings types: builds take seconds, cute/tensor.hpp four times that.
HALF = """#include <cutlass/numeric_types.h>
__global__ void round_trip(const float* a, float* b) { b[threadIdx.x] = float(cutlass::half_t(a[threadIdx.x])); }
extern "C" void solve(const float* a, float* b) { round_trip<<<1, 32>>>(a, b); }
"""


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def packaged() -> Path:
    """CUTLASS as PyPI ships it, a part of the development extra."""
    found = importlib.util.find_spec("cutlass_library")
    assert found is not None
    assert found.submodule_search_locations
    return Path(next(iter(found.submodule_search_locations))) / "source"


def checkout(folder: Path, version: str = "9.8.7") -> Path:
    """A folder laid out like a clone of CUTLASS, with the version header alone."""
    major, minor, patch = version.split(".")
    header = folder / "include" / "cutlass" / "version.h"
    header.parent.mkdir(parents=True)
    header.write_text(
        f"#define CUTLASS_MAJOR {major}\n#define CUTLASS_MINOR {minor}\n#define CUTLASS_PATCH {patch} // here\n"
    )
    (folder / "tools" / "util" / "include").mkdir(parents=True)
    return folder


def write(folder: Path, text: str) -> Path:
    source = folder / "kernel.cu"
    source.write_text(text, encoding="utf-8")
    return source


def test_a_cutlass_kernel_builds_is_bound_and_comes_from_the_cache(tmp_path: Path) -> None:
    source = write(tmp_path, HALF)
    backend = CutlassBackend()
    assert detect(source) == backend.name
    assert [p.type for p in backend.signature(source, SPEC).parameters] == ["const float*", "float*"]
    first, again = (backend.build(source, SPEC, tmp_path / "cache") for _ in range(2))
    assert isinstance(first, Built), first
    assert isinstance(again, Built)
    assert (first.cached, again.cached) == (False, True)
    assert [(k.arch, k.name) for k in first.resources] == [("sm_90a", "round_trip(float const*, float*)")]
    assert "-gencode=arch=compute_90a,code=sm_90a" in first.command
    listing = backend.disassemble(first)
    assert listing is not None
    assert listing.arch == "sm_90a"
    assert any(i.opcode.startswith("F2F") for f in listing.functions for i in f.instructions)
    assert backend.refusal(first, ()) is None


def test_an_edited_header_of_cutlass_makes_another_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout that somebody works on must not serve yesterday's kernels."""
    root = checkout(tmp_path / "my cutlass")
    monkeypatch.setenv("CUTLASS_PATH", str(root))
    header = root / "include" / "cutlass" / "own.h"
    source = write(tmp_path, '#include <cutlass/own.h>\nextern "C" void solve(float* b) { VALUE; }\n')
    keys = []
    for value in ("(void)1", "(void)22"):
        header.write_text(f"#define VALUE {value}\n")
        result = CutlassBackend().build(source, SPEC, tmp_path / "cache")
        assert isinstance(result, Built), result
        keys.append(result.key)
    assert keys[0] != keys[1]


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize("part", [".", "include"])
def test_a_variable_names_the_root_or_the_include_folder(
    variable: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = checkout(tmp_path / "cutlass")
    monkeypatch.setenv(variable, str(root / part))
    found = find_cutlass()
    assert found.version == "9.8.7"
    assert found.folders == (root / "include", root / "tools" / "util" / "include")


def test_a_variable_that_is_wrong_says_so_and_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match=r"CUTLASS_PATH is `.*`, but there is no include/cutlass/version\.h in it"):
        CutlassBackend().build(write(tmp_path, HALF), SPEC, tmp_path / "cache")


def test_a_clone_in_the_home_folder_comes_before_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout(tmp_path / "cutlass")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_cutlass().version == "9.8.7"
    shutil.rmtree(tmp_path / "cutlass")
    assert find_cutlass().folders[0] == packaged() / "include"
    assert CutlassBackend().toolchain()["cutlass"] == find_cutlass().version


def test_a_plain_cuda_kernel_does_not_ask_for_cutlass_and_a_candidate_that_does_is_only_a_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path / "nowhere"))
    plain = CudaBackend().build(write(tmp_path, 'extern "C" void solve(float* b) {}\n'), SPEC, tmp_path / "cache")
    assert isinstance(plain, Built)
    assert not any("cutlass" in word for word in plain.command)
    result = CudaBackend().build(write(tmp_path, HALF), SPEC, tmp_path / "cache")
    assert isinstance(result, Rejected)
    assert result.reason == "kernel.cu:1:10: fatal error: cutlass/numeric_types.h: No such file or directory"


def test_a_template_error_deep_in_cutlass_points_into_the_kernel(tmp_path: Path) -> None:
    text = HALF.replace("cutlass::half_t(a[threadIdx.x])", "cutlass::float_e4m3_t(tile)").replace(
        "{ b[", "{ struct Tile {} tile; b["
    )
    result = CutlassBackend().build(write(tmp_path, text), SPEC, tmp_path / "cache")
    assert isinstance(result, Rejected)
    assert result.reason.startswith("kernel.cu(2): error: ")
    assert len(result.evidence) < 6500
    assert "_cutlass" not in result.evidence
