"""`profile --from` and `roofline`: reading what a user already has, with no GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.errors import ConfigError, UnfitEnvironment
from agent.profiling_cli import Question, profile_from, roofline_from
from profiling.findings import Ceilings, Work

DATA = Path(__file__).parents[2] / "data" / "ncu"
GEMM = Work(2 * 2048**3, 3 * 4 * 2048**2)


def test_kernels_with_metrics_in_base_units() -> None:
    data, text = profile_from(DATA / "softmax_two_full_raw.csv")
    data = json.loads(json.dumps(data))
    first, second = data["kernels"]
    assert first["name"] == "row_stats(const float *, float *, int, int)"
    assert first["metrics"]["gpu__time_duration.sum"] == pytest.approx(16.384e-6)
    assert first["units"]["gpu__time_duration.sum"] == "s"
    assert second["metrics"]["dram__bytes_write.sum"] == pytest.approx(652544)
    assert second["grid"] == [4096, 1, 1]
    assert data["top"]["memory"][0]["distance"] >= data["top"]["memory"][1]["distance"]
    assert data["loads"]["memory"] == pytest.approx(0.55, abs=0.01)
    assert "row_apply" in text
    assert "57%" in text
    assert "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio" in text, "names are not cut"


def test_rules_with_their_estimates() -> None:
    data, text = profile_from(DATA / "gemm_naive_full_details.csv")
    assert data["rules"][0]["speedup_percent"] == pytest.approx(43.13)
    assert "MemoryCacheAccessPattern (est. 43.1% global)" in text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a,b\n1,2\n", "not an ncu CSV"),
        (b"==WARNING== No kernels were profiled.\nAvailable Kernels:\n1. k(int)\n", "available: k(int)"),
        (b"==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", "--cap-add"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "page.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        profile_from(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="no such file"):
        profile_from(tmp_path / "none.csv")


def test_a_report_needs_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is none, the user is told how to export what can be read here."""
    report = tmp_path / "x.ncu-rep"
    report.write_bytes(b"NVR\0")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises((UnfitEnvironment, ConfigError)) as caught:
        profile_from(report)
    assert "x.ncu-rep" in str(caught.value)


def test_roofline_of_a_profile() -> None:
    """The time is the profile's, the peaks are the chip's own where none were measured, and both are said."""
    data, text = roofline_from(DATA / "gemm_naive_full_raw.csv", Question(work=GEMM))
    assert data["headroom"]["bound"] == "memory"
    assert not data["headroom"]["near_peak"]
    assert data["headroom"]["floor_ms"] == pytest.approx(0.257, abs=0.001)
    assert data["axis_budget"] == {"compute": 1, "memory": 2, "latency": 0}
    assert "theoretical peaks" in text
    given = Ceilings(4.28e12, 4.47e12, None, {"float32": 5.1e13}, {}, 1e13, {})
    data, text = roofline_from(DATA / "gemm_naive_full_raw.csv", Question(time_ms=0.35, work=GEMM, ceilings=given))
    assert data["headroom"]["near_peak"]
    assert "measured here" in text


def test_roofline_without_ceilings_has_no_floor_and_says_so() -> None:
    """An unknown GPU is unknown, never a default row of a table."""
    data, text = roofline_from(DATA / "gemm_naive_full_details.csv", Question(work=GEMM))
    assert data["headroom"]["floor_ms"] is None
    assert data["ceilings"] is None
    assert "unknown" in text


def test_roofline_needs_the_time(tmp_path: Path) -> None:
    """A page without it is no kernel of zero milliseconds."""
    lines = (DATA / "gemm_naive_full_details.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    page = tmp_path / "page.csv"
    page.write_text("".join(line for line in lines if '"Duration"' not in line), encoding="utf-8")
    with pytest.raises(ConfigError, match="--time-ms"):
        roofline_from(page, Question(work=GEMM))
    data, _ = roofline_from(page, Question(time_ms=3.0, work=GEMM))
    assert data["headroom"]["time_ms"] == 3.0
