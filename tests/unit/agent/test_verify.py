"""`verify`: what confirms a recorded speedup, what refutes it, and what is not even measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.bundle import MANIFEST, Claim, claim_of, read_bundle, write_bundle
from agent.config import load_config
from agent.errors import ConfigError
from agent.verify_cli import judge, verify
from backends.types import Rejected
from profiling.findings import Comparison

CLAIM = Claim(speedup=2.0, low=1.98, high=2.02, baseline_ms=10.0, best_ms=5.0)
ABOUT = {
    "run": "run_20261130_010000",
    "origin": "iter1/b0",
    "build_key": "0" * 64,
    "least_gain": 0.02,
    "device": {"id": "0123", "name": "Imaginary CPU", "arch": "x86_64", "driver": None},
    "versions": {"g++": "12.2.0"},
}


def measured(low: float, middle: float, high: float) -> Comparison:
    return Comparison(middle, low, high, 10.0, 5.0, 5.0, 4.9, 5.1, ((0.7,),))


@pytest.mark.parametrize(
    ("interval", "finding"),
    [
        ((1.97, 1.99, 2.01), "holds"),
        ((1.91, 1.92, 1.93), "holds"),  # the intervals do not meet, but by less than the run could tell apart
        ((1.85, 1.87, 1.89), "missed"),
        ((2.15, 2.20, 2.25), "exceeded"),
        ((0.97, 1.50, 2.50), "undecided"),  # so wide that it confirms and refutes nothing
    ],
)
def test_intervals_are_held_together_with_room_for_what_a_day_changes(
    interval: tuple[float, float, float], finding: str
) -> None:
    found, reason = judge(CLAIM, measured(*interval), 0.02)
    assert found == finding
    assert "recorded 2.00× [1.98, 2.02], measured again" in reason


def bundle(folder: Path, claim: Claim | None = CLAIM) -> Path:
    (folder / "given").mkdir(parents=True)
    (folder / "given" / "kernel.cpp").write_bytes(b"// caf\xe9\n")
    (folder / "given" / "reference.py").write_text("def reference(x, y): ...\n")
    task = folder / "given" / "task.yaml"
    task.write_text(
        "task: {name: t, backend: cpp, baseline: kernel.cpp, reference: reference.py, dims: {n: 64}, "
        "check_dims: [{n: 1}]}\nllm: {provider: replay, answers: answers}\nmeasure: {pairs: 4}\n"
    )
    write_bundle(folder / "run" / "best", load_config(task), "int best;\n", [{"n": 37}], {**ABOUT, "claim": claim})
    return folder / "run"


def test_a_bundle_is_a_task_of_its_own_with_the_hidden_shapes_told(tmp_path: Path) -> None:
    run = bundle(tmp_path)
    moved = tmp_path / "elsewhere"
    run.rename(moved)
    (tmp_path / "given").rename(tmp_path / "gone")
    manifest = read_bundle(moved / "best")
    config = load_config(moved / "best" / manifest.config)
    assert config.task.baseline == moved / "best" / "baseline.cpp"
    assert config.task.baseline.read_bytes() == b"// caf\xe9\n"
    assert [dict(shape) for shape in config.task.check_dims] == [{"n": 1}, {"n": 37}]
    assert config.task.hidden_shapes == 0
    assert config.measure.pairs == 4
    assert config.llm is None


@pytest.mark.parametrize("name", ["kernel.cpp", "baseline.cpp", "reference.py", "config.yaml"])
def test_what_was_changed_is_refused_before_anything_is_built(tmp_path: Path, name: str) -> None:
    run = bundle(tmp_path)
    (run / "best" / name).write_bytes((run / "best" / name).read_bytes() + b"\n")
    with pytest.raises(ConfigError, match=rf"{name}: was changed since the run"):
        verify(run)


def test_a_file_that_is_gone_a_strange_manifest_and_no_bundle_are_one_clear_line(tmp_path: Path) -> None:
    run = bundle(tmp_path)
    (run / "best" / "reference.py").unlink()
    with pytest.raises(ConfigError, match=r"reference\.py: is missing"):
        verify(run)
    manifest = run / "best" / MANIFEST
    outside = json.loads(manifest.read_text())
    outside["sha256"] = {"../given/kernel.cpp": "0" * 64}
    manifest.write_text(json.dumps(outside))
    with pytest.raises(ConfigError, match="is no file of the bundle"):
        verify(run)
    manifest.write_text('{"run": "r"}')
    with pytest.raises(ConfigError, match=r"not a manifest of this version of Roofclimb \(`task`\)"):
        verify(run)
    with pytest.raises(ConfigError, match="a run has a bundle once it has ended"):
        verify(tmp_path)
    with pytest.raises(ConfigError, match="no such folder; name a run's folder"):
        verify(tmp_path / "gone")


def test_a_run_that_claimed_nothing_has_nothing_to_verify(tmp_path: Path) -> None:
    data, text = verify(bundle(tmp_path, claim=None))
    assert data["finding"] == "no claim"
    assert data["measured"] is None
    assert "claimed no speedup" in text
    assert claim_of(Rejected("verify", "best is wrong")) is None
