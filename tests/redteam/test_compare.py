"""Cheats too small for one measurement to show: they must not become a gain in a comparison.

A folder of `cpp/` with a `compared.cpp` is one such cheat, as fast as its `honest.cpp` and no faster.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.types import Rejected
from profiling.harness.harness import Harness
from profiling.types import Comparison, Limits, MeasureSettings
from tests.kernels import GEMM_NAIVE, compile_kernel, gemm_problem

_CHEATS = sorted(p.parent for p in (Path(__file__).parent / "cpp").glob("*/compared.cpp"))


@pytest.mark.parametrize("cheat", _CHEATS, ids=lambda folder: folder.name)
def test_a_cheat_gains_nothing_on_its_honest_twin(cheat: Path, tmp_path: Path) -> None:
    settings = MeasureSettings(warmup_ms=2.0, min_time_s=0.05, max_time_s=4.0)
    problem = gemm_problem(tmp_path, 64)
    with Harness(problem, settings, Limits(call_s=1.0, memory_bytes=512 << 20), tmp_path / "cache") as harness:
        harness.check_task(compile_kernel(GEMM_NAIVE, tmp_path, "baseline"))
        honest = compile_kernel((cheat / "honest.cpp").read_text(), tmp_path, "honest")
        exploit = compile_kernel((cheat / "compared.cpp").read_text(), tmp_path, "exploit")
        fair = harness.compare(honest, honest)
        found = harness.compare(honest, exploit)
    assert isinstance(fair, Comparison), fair.reason
    if isinstance(found, Rejected):
        assert (found.stage, found.reason[:19]) == ("time", "b: clocks disagree:")
    else:
        assert found.low <= 1.0
