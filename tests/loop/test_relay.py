"""A run that was measured on a GPU goes on without it as far as answers carry it: they may be relayed elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agent.config import dump_config, load_config
from agent.journal import read_events
from agent.paths import CONFIGS
from agent.run_folder import copy_inputs
from agent.task import prepare_task
from backends.types import ToolchainError
from profiling.gpu_device import find_gpu
from tests.loop.scenario import roofclimb

DATA = Path(__file__).parents[1] / "data" / "gpu_run"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder from a GPU box, with the `file` provider, before its first question."""
    try:
        find_gpu(0)
    except ToolchainError:
        pass
    else:
        pytest.skip("this machine has a GPU: the run would be measured anew")
    answers = tmp_path / "answers"
    config = load_config(CONFIGS / "gemm.yaml", [f"llm={{provider: file, answers: {answers}}}"])
    folder = tmp_path / "run_20261130_084454"
    folder.mkdir()
    copy_inputs(config, prepare_task(config), folder)
    dump_config(load_config(folder / "config.yaml"), folder / "config.yaml")
    shutil.copy(DATA / "events.jsonl", folder / "events.jsonl")
    return folder


def test_questions_are_asked_without_the_gpu_and_measuring_is_refused(run: Path, tmp_path: Path) -> None:
    """Else a box with no network has to be started once for every question."""
    answers = tmp_path / "answers"
    first = roofclimb("resume", str(run), cwd=tmp_path)
    assert first.returncode == 75, first.stderr
    assert (answers / "iter1-plan-0.prompt.md").is_file()
    shutil.copy(DATA / "plan.json", answers / "iter1-plan-0.answer.md")
    second = roofclimb("resume", str(run), cwd=tmp_path)
    assert second.returncode == 75, second.stderr
    assert sorted(p.name for p in answers.glob("iter1-branch-*")) == [
        f"iter1-branch-b{i}-0.prompt.md" for i in range(4)
    ]
    for i in range(4):
        source = (CONFIGS / "kernels" / "gemm_naive.cu").read_text().replace("acc", f"sum{i}")
        (answers / f"iter1-branch-b{i}-0.answer.md").write_text(f"```cuda\n{source}```\n")
    third = roofclimb("resume", str(run), cwd=tmp_path)
    assert third.returncode == 3
    assert "something must be measured, and this machine has no NVIDIA H200" in third.stderr
    kinds = [event.type for event in read_events(run / "events.jsonl")[0]]
    assert kinds.count("session_started") == 1
    assert kinds.count("evaluated") == 1
