"""The red-team cases for GPUs build here, so that on a GPU none is rejected for a slip of ours."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from agent.config import load_config
from agent.task import Task, check_candidate, prepare_task
from backends.types import Built, Rejected
from profiling.redteam.cases import BACKENDS, Case, find_cases, read_case

LEAST = {"cpp": 25, "cuda": 25, "cutlass": 1, "triton": 12}


def task_of(path: Path) -> Task:
    task = prepare_task(load_config(path))
    return replace(task, spec=replace(task.spec, arch="sm_90"))


def found(task: Task, source: Path, cache: Path) -> Built | Rejected:
    built = task.backend.build(source, task.spec, cache)
    return built if isinstance(built, Rejected) else check_candidate(task, source, built)


@pytest.mark.parametrize("backend", BACKENDS)
def test_there_are_as_many_as_we_say(backend: str) -> None:
    assert len([case for case in find_cases(backend) if case.gap is None]) >= LEAST[backend]


@pytest.mark.parametrize("backend", ["cuda", "cutlass", "triton"])
def test_cases_for_gpus_build_and_no_rule_is_over_eager(backend: str, tmp_path: Path) -> None:
    """Honest twins hold to signature and libraries; exploits build, so that they are stopped for what they do."""
    cases = find_cases(backend)
    tasks = {path: task_of(path) for path in {case.task for case in cases}}

    def build(case: Case) -> tuple[Built | Rejected, Built | Rejected]:
        task = tasks[case.task]
        return task.backend.build(case.cheat, task.spec, tmp_path), found(task, case.honest, tmp_path)

    with ThreadPoolExecutor(max_workers=2) as pool:
        builds = dict(zip(cases, pool.map(build, cases), strict=True))
    assert {c.name: cheat.reason for c, (cheat, _) in builds.items() if isinstance(cheat, Rejected)} == {}
    assert {c.name: twin.reason for c, (_, twin) in builds.items() if isinstance(twin, Rejected)} == {}


def test_an_incomplete_case_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "half_done"
    folder.mkdir()
    (folder / "exploit.cpp").write_text("// Does nothing.\n// expect: wrong\n")
    with pytest.raises(ValueError, match=r"half_done: needs exploit\.cpp .* and honest\.cpp"):
        read_case("cpp", folder)
    (folder / "honest.cpp").write_text("// The work.\n")
    assert read_case("cpp", folder).tries == "Does nothing"
    (folder / "exploit.cpp").write_text("// Does nothing.\n")
    with pytest.raises(ValueError, match="has an `expect:` line"):
        read_case("cpp", folder)
