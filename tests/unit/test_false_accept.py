"""The kernels of benchmarks/false_accept.py differ in what they do, or all that it shows would be worth nothing."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from backends.cpp import CppBackend
from backends.cuda import CudaBackend
from backends.types import BuildSpec, Built, Listing

SOURCE = Path(__file__).parents[2] / "benchmarks" / "false_accept.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("false_accept", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def listing(benchmark: ModuleType, name: str, kind: str, folder: Path) -> Listing:
    backend = CudaBackend() if name == "cuda" else CppBackend()
    spec = BuildSpec(arch="sm_90") if name == "cuda" else BuildSpec()
    built = backend.build(benchmark.prepare(folder, name, kind), spec, folder / "builds")
    assert isinstance(built, Built), built
    found = backend.disassemble(built)
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["cpp", "cuda"])
def test_the_turns_are_in_the_machine_code(benchmark: ModuleType, name: str, tmp_path: Path) -> None:
    """A compiler that sees that nothing comes of them leaves them out, and the three kernels are one."""
    texts = {kind: listing(benchmark, name, kind, tmp_path).text for kind in benchmark.TURNS}
    assert len(set(texts.values())) == 3
    count = round(benchmark.BACKENDS[name][3] * benchmark.TURNS["itself"])
    assert any(f"{count - step:#x}" in texts["itself"] for step in range(33))


def test_what_is_left_to_compare_is_mixed_evenly(benchmark: ModuleType) -> None:
    wanted = benchmark.order(6, 2, [{"kind": "itself"}, {"kind": "slower"}])
    assert sorted(wanted) == ["faster", "faster", "itself", "itself", "itself", "itself", "itself", "slower"]
    assert "faster" in wanted[:4]
    assert "faster" in wanted[4:]


def test_none_in_three_hundred_bounds_the_share_at_one_percent(benchmark: ModuleType) -> None:
    assert benchmark.upper_bound(0, 300) == pytest.approx(1 - 0.05 ** (1 / 300), rel=1e-6)
    assert benchmark.upper_bound(300, 300) == 1.0
