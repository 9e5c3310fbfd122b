"""Measured ceilings: the denominators of every roofline claim."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from backends.types import ToolchainError
from profiling.ceilings import measure_ceilings, parse_rates, peak_bytes, peak_flops
from profiling.findings import Ceilings

needs_compiler = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler on PATH"
)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ceilings, Path]:
    cache = tmp_path_factory.mktemp("ceilings")
    return measure_ceilings(cache, threads=1), cache


@needs_compiler
def test_one_core_is_measured_and_consistent(measured: tuple[Ceilings, Path]) -> None:
    """A rate of code that was thrown away, or of nothing, would make every kernel look hopeless or perfect."""
    ceilings, _ = measured
    assert 1e8 < ceilings.copy_bytes < 1e12
    assert 1e8 < ceilings.read_bytes < 1e12
    assert 1e8 < ceilings.flops["float64"] < 1e12
    assert 1e8 < ceilings.flops["float32"] < 1e12
    assert ceilings.cache_bytes is not None
    for key in ("device", "cores", "compiler", "method", "date", "seconds", "one_core_copy_bytes"):
        assert ceilings.provenance[key], key
    # More cores never do less arithmetic; what all of them do is shown beside what the task may use.
    for dtype in ("float32", "float64"):
        every = float(ceilings.provenance[f"all_cores_{dtype}_flops"])
        assert every > 0.8 * float(ceilings.provenance[f"one_core_{dtype}_flops"])


@needs_compiler
def test_theoretical_rates_clear_everything_measured(measured: tuple[Ceilings, Path]) -> None:
    """Else an honest kernel whose data is in cache would be called suspect."""
    ceilings, _ = measured
    for key, value in ceilings.provenance.items():
        if key.startswith("all_cores_"):
            continue
        if key.endswith("_bytes") and key != "buffer_bytes":
            assert ceilings.theoretical_bytes > 1.5 * float(value), key
        if key.endswith("_flops"):
            dtype = "float32" if "float32" in key else "float64"
            assert ceilings.theoretical_flops[dtype] > 1.5 * float(value), key


@needs_compiler
def test_a_second_call_takes_no_measurement(measured: tuple[Ceilings, Path]) -> None:
    """Ceilings that change between two runs make their rooflines incomparable."""
    ceilings, cache = measured
    (path,) = cache.glob("*.json")
    raw = json.loads(path.read_text())
    raw["provenance"] |= {"mark": "from the cache", "unsettled": ""}
    path.write_text(json.dumps(raw))
    again = measure_ceilings(cache, threads=1)
    assert again.provenance["mark"] == "from the cache"
    assert again.flops == ceilings.flops


@needs_compiler
def test_broken_and_old_unsettled_cache_files_are_measured_anew(
    measured: tuple[Ceilings, Path], tmp_path: Path
) -> None:
    """A half-written file, or a measurement from a busy minute, must not spoil every later run."""
    _, cache = measured
    (path,) = cache.glob("*.json")
    raw = json.loads(path.read_text())
    hours_ago = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=2)
    raw["provenance"] |= {"mark": "stale", "unsettled": "read_memory (one)", "date": hours_ago.isoformat()}
    for content in (path.read_text()[:50], json.dumps(raw)):
        (tmp_path / path.name).write_text(content)
        fresh = measure_ceilings(tmp_path, threads=1)
        assert "mark" not in fresh.provenance
        assert TypeAdapter(Ceilings).validate_json((tmp_path / path.name).read_bytes()) == fresh
    assert [file.name for file in tmp_path.iterdir()] == [path.name], "no partial file is left behind"


def test_too_many_threads_is_an_environment_error(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="cores usable"):
        measure_ceilings(tmp_path, threads=len(os.sched_getaffinity(0)) + 1)


def test_a_line_that_is_no_measurement_is_an_error() -> None:
    """Parsed as zero it would put every kernel above the roof."""
    rates, unsettled = parse_rates("copy_plain one 2e10 0.0100\ncopy_plain all 3e10 0.2000\n")
    assert rates == {("copy_plain", "one"): 2e10, ("copy_plain", "all"): 3e10}
    assert unsettled == ("copy_plain (all)",)
    with pytest.raises(ToolchainError, match="no measurement"):
        parse_rates("Killed\n")


def test_peaks_of_unmeasured_arithmetic_are_none() -> None:
    ceilings = Ceilings(2e10, 3e10, None, {"float32": 1e11}, {"float32": 2e11}, 9e10, {})
    assert peak_flops(ceilings, "float16") is None
    assert peak_flops(ceilings, "float32", theoretical=True) == 2e11
    assert peak_bytes(ceilings) == 3e10, "a reduction only reads: it is held to the faster of copy and read"
    assert ceilings.cache_bytes is None
