"""What a user loses when the wrong backend is picked: errors about a language that the kernel is not written in."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.registry import BACKENDS, detect, get_backend
from backends.types import SourceError


@pytest.mark.parametrize(
    ("name", "text", "backend"),
    [
        ("gemm.cpp", "", "cpp"),
        ("gemm.cc", "", "cpp"),
        ("gemm (v2).CXX", "", "cpp"),
        ("softmax.py", "", "triton"),
        ("gemm.cu", '#include <cuda_runtime.h>\n#include "mycutlass/x.h"\n', "cuda"),
        ("gemm.cu", "// cutlass/gemm.h is not used\n", "cuda"),
        ("gemm.cu", "#include <cutlass/gemm/device/gemm.h>\n", "cutlass"),
        ("gemm.cu", '  #  include "cute/tensor.hpp"\n', "cutlass"),
    ],
)
def test_detects_by_suffix_and_includes(name: str, text: str, backend: str, tmp_path: Path) -> None:
    source = tmp_path / name
    source.write_text(text, encoding="utf-8")
    assert detect(source) == backend


def test_unknown_suffix_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"gemm\.cp: no backend is known by suffix `\.cp` \(nearest: `\.cpp`\)"):
        detect(tmp_path / "gemm.cp")
    with pytest.raises(SourceError, match="a name without a suffix"):
        detect(tmp_path / "Makefile")


def test_unreadable_cu_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"absent\.cu: No such file"):
        detect(tmp_path / "absent.cu")


def test_every_registered_backend_loads_under_its_own_name() -> None:
    assert [get_backend(name).name for name in BACKENDS] == list(BACKENDS)


def test_a_misspelt_backend_names_the_nearest() -> None:
    with pytest.raises(SourceError, match=r"unknown backend `ccp` \(nearest: `cpp`\)"):
        get_backend("ccp")
