"""Every known cheat must be rejected, and its honest twin accepted.

A folder of `cpp/` is one cheat: `exploit.cpp`, whose `// expect:` line is a pattern for the reason, and `honest.cpp`.
A `// needs:` line names the one layer of the sandbox that stops it, where that is all that does.
All run in one harness, one after the other, so each also shows that the one before it left nothing behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from profiling.harness.harness import Harness
from profiling.types import Limits, MeasureSettings
from tests.kernels import GEMM_NAIVE, compile_kernel, gemm_problem
from tests.leftovers import still_running

_CHEATS = sorted(p.name for p in (Path(__file__).parent / "cpp").iterdir() if (p / "exploit.cpp").exists())


@dataclass(frozen=True, slots=True)
class Lab:
    harness: Harness
    folder: Path


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("redteam")
    settings = MeasureSettings(warmup_ms=2.0, min_time_s=0.01, max_time_s=5.0)
    limits = Limits(call_s=1.0, memory_bytes=512 << 20)
    with Harness(gemm_problem(folder, 64), settings, limits, folder / "cache") as harness:
        harness.check_task(compile_kernel(GEMM_NAIVE, folder, "baseline"))
        yield Lab(harness, folder)


@pytest.mark.parametrize("cheat", _CHEATS)
def test_a_cheat_is_rejected_for_its_reason(lab: Lab, cheat: str) -> None:
    source = (Path(__file__).parent / "cpp" / cheat / "exploit.cpp").read_text()
    expected = re.search(r"^// expect: (.+)$", source, re.MULTILINE)
    assert expected is not None
    needs = re.search(r"^// needs: (.+)$", source, re.MULTILINE)
    if needs is not None and not lab.harness.layers()[needs.group(1)]:
        pytest.skip(f"only the layer {needs.group(1)} stops it, which this machine does not grant")
    found = lab.harness.evaluate(compile_kernel(source, lab.folder / cheat, "exploit"))
    assert found.verdict in ("fail", "suspect"), found
    assert found.reason is not None
    assert re.search(expected.group(1), found.reason), found.reason
    assert still_running(lab.folder) == []


@pytest.mark.parametrize("cheat", _CHEATS)
def test_its_honest_twin_is_accepted(lab: Lab, cheat: str) -> None:
    source = (Path(__file__).parent / "cpp" / cheat / "honest.cpp").read_text()
    found = lab.harness.evaluate(compile_kernel(source, lab.folder / cheat, "honest"))
    assert found.verdict == "pass", found
