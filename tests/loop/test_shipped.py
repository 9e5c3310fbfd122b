"""The shipped tasks: every one loads, and the demo makes its kernel faster with the answers it ships."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.config import load_config
from agent.llm.recording import read_recording
from agent.paths import CONFIGS
from agent.task import prepare_task
from tests.loop.scenario import roofclimb, state_of

TASKS = sorted(p for p in CONFIGS.glob("*.yaml") if p.name != "prices.yaml")


@pytest.mark.parametrize("path", TASKS, ids=lambda p: p.stem)
def test_a_shipped_task_loads_and_binds(path: Path) -> None:
    task = prepare_task(load_config(path))
    assert task.notes == ()
    assert task.problem.reference is not None


RECORDED = [
    ("quickstart", 3),
    ("softmax_cpu", 2),
    ("stencil_cpu", 2),
    ("gemm", 2),
    ("softmax_cutlass", 2),
    ("layernorm_triton", 2),
]


@pytest.mark.parametrize(("name", "iterations"), RECORDED)
def test_every_step_of_a_shipped_task_has_a_recorded_answer(name: str, iterations: int) -> None:
    config = load_config(CONFIGS / f"{name}.yaml")
    assert config.search.iterations == iterations
    assert config.llm is not None
    assert config.llm.answers is not None
    for i in range(1, iterations + 1):
        for step in (f"iter{i}-plan-0", *(f"iter{i}-branch-b{b}-0" for b in range(config.search.branches))):
            recording = read_recording(config.llm.answers, step)
            assert recording is not None, step
            assert recording.reply.text.strip()
            assert recording.user
            if "-plan-" in step:
                assert "rules" in recording.context


def test_the_demo_at_a_smaller_size_ends_with_a_faster_kernel_and_evidence(tmp_path: Path) -> None:
    small = ["--set", "task.dims={M: 208, N: 176, K: 240}", "--set", "search.near_peak=0"]
    done = roofclimb("run", "--config", "quickstart", "--json", *small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    state = state_of(tmp_path)
    assert json.loads(done.stdout) == json.loads(state.model_dump_json())
    assert state.status == "finished"
    assert state.speedup is not None
    assert state.speedup_interval is not None
    assert state.speedup_interval[0] > 4
    assert any(m.attribution_ms for m in state.effective_methods)
    assert [i.iteration for i in state.iterations] == [1, 2, 3]
    assert len(state.branches) == 12
    run = tmp_path / "runs" / "latest"
    assert all((run / f"iterv{i}" / "attribution.json").is_file() for i in (1, 2, 3))
    assert "The model's answers were recorded" in (run / "summary.md").read_text()
