"""Shapes that nobody wrote down: a kernel cannot be made for them, and no prompt tells them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from agent import events as ev
from agent.config import load_config
from agent.hidden_shapes import draw_shapes, with_hidden
from agent.machine import here
from agent.paths import CONFIGS
from agent.report.summary import render_summary
from agent.state_fold import fold
from agent.task import Task, open_harness, prepare_task
from backends.types import Built, Rejected
from tests.loop.scenario import BASELINE, write_task
from tests.unit.agent import event_log


def task_of(folder: Path, *overrides: str) -> Task:
    return prepare_task(load_config(write_task(folder, {"provider": "replay", "answers": "answers"}), overrides))


def drawn(task: Task, seed: int) -> list[int]:
    return [shape["N"] for shape in draw_shapes(task, random.Random(seed), Path())]


def test_one_is_prime_one_tiny_one_larger_than_timed_and_every_run_has_its_own(tmp_path: Path) -> None:
    task = task_of(tmp_path, "task.check_dims=[]")
    for seed in range(50):
        prime, tiny, larger = drawn(task, seed)
        assert 11 <= prime <= 640
        assert all(prime % divisor for divisor in range(2, prime))
        assert 1 <= tiny <= 7
        assert 640 < larger <= 640 * 1.25
    assert len({tuple(drawn(task, seed)) for seed in range(50)}) > 40


def test_as_many_are_drawn_as_the_task_asks_for(tmp_path: Path) -> None:
    assert len(drawn(task_of(tmp_path, "task.hidden_shapes=5"), 1)) == 5
    assert drawn(task_of(tmp_path, "task.hidden_shapes=0"), 1) == []
    assert drawn(task_of(tmp_path, "task.shapes=fixed"), 1) == []


def test_none_is_drawn_that_the_tensors_shapes_do_not_admit(tmp_path: Path) -> None:
    task = task_of(tmp_path, "task.check_dims=[]", 'task.tensors.y.shape=["N/2", 2]')
    shapes = [n for seed in range(30) for n in drawn(task, seed)]
    assert shapes
    assert all(n % 2 == 0 for n in shapes)


def test_a_case_has_the_shapes_of_its_dims(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    hidden = with_hidden(task, [{"N": 13}])
    assert hidden.spec.elsewhere == ()
    (case,) = hidden.problem.checks[len(task.problem.checks) :]
    assert case.secret
    assert [t.shape for t in case.tensors] == [(13, 13), (13,), (13,)]


@pytest.mark.parametrize("reference_fails", [False, True])
def test_a_kernel_for_the_known_shapes_alone_fails_and_is_not_told_where(tmp_path: Path, reference_fails: bool) -> None:
    """Where the reference cannot do a hidden shape either, it is left out and nobody is blamed."""
    task = task_of(tmp_path)
    if reference_fails:
        reference = "def reference(A, x, y, N):\n    assert N != 13, 'not 13'\n    y.copy_(A.T @ x)\n"
        (tmp_path / "reference.py").write_text(reference)
    (tmp_path / "made_for.cpp").write_text(BASELINE.replace("i < N;", "i < N - (N == 13);"))
    task = with_hidden(task, [{"N": 13}, {"N": 700}])
    cache = tmp_path / "cache"

    def build(source: Path) -> Built:
        built = task.backend.build(source, task.spec, cache / "builds")
        assert not isinstance(built, Rejected), built
        return built

    with open_harness(task, here(), cache) as harness:
        found = harness.check_task(build(task.baseline).artifact)
        assert [dims for dims, _ in found.dropped_checks] == ([{"N": 13}] if reference_fails else [])
        evaluation = harness.evaluate(build(tmp_path / "made_for.cpp").artifact)
    if reference_fails:
        assert evaluation.verdict == "pass"
        assert "not 13" in found.dropped_checks[0][1]
        return
    assert evaluation.verdict == "fail"
    assert evaluation.reason is not None
    assert evaluation.reason.endswith("(declared inputs, a hidden shape)")
    assert "13" not in evaluation.reason.partition("(declared")[2]


def test_the_report_tells_them_once_the_run_has_ended(tmp_path: Path) -> None:
    whole = event_log.whole_run()
    shapes = ev.ShapesDrawn(key="hidden", shapes=({"N": 90901},))
    at = next(i for i, e in enumerate(whole) if isinstance(e, ev.TaskChecked))
    events = event_log.stamped([*whole[:at], shapes, *whole[at:]])
    ended = next(i for i, e in enumerate(events) if isinstance(e, ev.RunEnded))
    assert "90901" in render_summary(fold(events), events)
    before = events[:ended]
    text = render_summary(fold(before), before)
    assert "90901" not in text
    assert "1, told at the end" in text


def test_a_triton_task_gets_one_that_its_baseline_builds_for(tmp_path: Path) -> None:
    """Every candidate is compiled for it: it must be known before that, and be one at which the baseline compiles."""
    pytest.importorskip("triton")
    task = prepare_task(load_config(CONFIGS / "layernorm_triton.yaml"))
    task = replace(task, spec=replace(task.spec, arch="sm_90"))
    (shape,) = draw_shapes(task, random.Random(3), tmp_path)
    hidden = with_hidden(task, [shape])
    assert hidden.spec.untold == 1
    assert len(hidden.spec.elsewhere) == len(task.spec.elsewhere) + 1
    built = task.backend.build(task.baseline, hidden.spec, tmp_path)
    assert isinstance(built, Built)
    assert built.cached
