"""From a config to a bound problem: what a run rests on before anything is built."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.config import Config, load_config
from agent.errors import ConfigError, UnfitEnvironment
from agent.machine import require_features
from agent.task import build_candidate, one_pass_bytes, prepare_task, work_of
from backends.types import Rejected
from backends.walls import layers
from profiling.device import cpu_facts
from profiling.findings import TaskCheck
from tests.loop.scenario import write_task


def load(folder: Path, *overrides: str) -> Config:
    return load_config(write_task(folder, {"provider": "replay", "answers": "answers"}), overrides)


def test_a_cpu_without_the_instructions_that_kernels_are_built_for_is_refused(tmp_path: Path) -> None:
    backend = prepare_task(load(tmp_path)).backend
    here = cpu_facts()
    require_features(backend, here)
    if not backend.needs_features:
        pytest.skip("kernels for this architecture need no optional instructions")
    old = replace(here, features=tuple(f for f in here.features if f not in ("avx2", "fma")))
    with pytest.raises(UnfitEnvironment, match="lacks avx2, fma"):
        require_features(backend, old)


def test_precision_widens_the_norm_check_and_the_tolerance_section_overrides_it(tmp_path: Path) -> None:
    overrides = ("task.precision=input", "task.precision=tf32", "task.tolerance.baseline_factor=3")
    factors = [prepare_task(load(tmp_path, override)).problem.baseline_factor for override in overrides]
    assert factors == [8.0, 512.0, 3.0]


def test_precision_counts_where_the_reference_gives_the_tolerance(tmp_path: Path) -> None:
    """Else every TF32 kernel of such a task fails the norm check that `precision: tf32` was to widen."""
    problem = prepare_task(load(tmp_path, "task.precision=tf32", "task.tolerance=null")).problem
    assert problem.tolerance is None
    assert problem.baseline_factor == 512.0


def test_work_comes_from_the_config_then_the_reference_then_one_pass(tmp_path: Path) -> None:
    check = TaskCheck((), (), None, flops=7.0, bytes=9.0, tolerance=None)
    given = prepare_task(load(tmp_path))
    assert work_of(given, check).flops == 2 * 640 * 640
    bare = prepare_task(load(tmp_path, "task.work={}"))
    assert (work_of(bare, check).flops, work_of(bare, check).bytes) == (7.0, 9.0)
    assert work_of(bare, None).flops is None
    assert work_of(bare, None).bytes == one_pass_bytes(bare.problem.timed) == 4 * (640 * 640 + 2 * 640)


def test_check_dims_may_only_name_dims(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`K` is not one of the dims"):
        prepare_task(load(tmp_path, "task.check_dims=[{K: 3}]"))


def test_the_baselines_own_folder_is_searched_for_headers(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert tmp_path in prepare_task(config).spec.include


def test_pointers_without_a_rule_are_noted(tmp_path: Path) -> None:
    assert prepare_task(load(tmp_path)).notes == ()
    notes = prepare_task(load(tmp_path, "task.tensors={A: {shape: [N, N]}}")).notes
    assert "`x`, `y`" in notes[0]


def test_no_kernel_may_read_runs_or_the_memory_beside_the_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default both lie where the task does: earlier answers are there, and what they were worth."""
    if not layers()["build_files"]:
        pytest.skip("no Landlock here")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    copy = "memory.db.revision-0001-20260601T010203.bak"
    (tmp_path / copy).touch()
    secrets = ("runs/run_1/answer.h", ".roofclimb/memory.db", "cache/roofclimb/inputs.h", "memory.db-wal", copy)
    task = prepare_task(load(tmp_path))
    for name in (*secrets, "open.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("#pragma once\n", encoding="utf-8")
        candidate = tmp_path / "runs" / "run_1" / "kernel.cpp"
        text = task.baseline.read_text(encoding="utf-8")
        candidate.write_text(f'#include "{name}"\n{text}', encoding="utf-8")
        found = build_candidate(task, candidate, task.spec, tmp_path / "cache")
        assert isinstance(found, Rejected) == (name in secrets), (name, found)
