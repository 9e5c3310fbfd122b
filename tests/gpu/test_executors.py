"""Two GPUs of one machine: a kernel is found to be the same on both, and its times agree once they are scaled."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config import load_config
from agent.elsewhere import comparable_ms
from agent.executors.choose import open_executor
from agent.executors.local import LocalExecutor
from agent.executors.types import EvaluateTask, Setting
from agent.machine import find_machine
from agent.paths import find_config
from agent.task import on_machine, open_harness, prepare_task
from backends.types import Built
from profiling.gpu_device import GpuFacts
from profiling.gpu_others import other_gpus

pytestmark = pytest.mark.gpu


def test_a_second_gpu_finds_what_the_first_one_finds(gpu: GpuFacts, tmp_path: Path) -> None:
    if not other_gpus(gpu, ()):
        pytest.skip("needs two GPUs of one model")
    config = load_config(find_config("gemm"), ["task.dims={M: 1024, N: 1024, K: 1024}", "search.branches=2"])
    machine = find_machine(config, prepare_task(config).backend, print)
    task = on_machine(prepare_task(config), machine)
    built = task.backend.build(task.baseline, task.spec, tmp_path / "builds")
    assert isinstance(built, Built)
    with open_harness(task, machine, tmp_path) as home:
        home.check_task(built.artifact)
        base = home.evaluate(built.artifact)
        assert base.timing is not None, base.reason
        executor = open_executor(task, machine, home, tmp_path, lambda: False)
        assert isinstance(executor, LocalExecutor)
        try:
            executor.prepare(Setting(built, built, None))
            executor.wait()
            assert executor.troubles() == []
            assert executor.places == 2
            executor.open_workers(2)
            executor.wait()
            task_of_both = EvaluateTask((built,), built, base.timing.median_ms)
            here, there = (f.result() for f in [executor.evaluate(task_of_both) for _ in range(2)])
        finally:
            executor.close()
    assert here.elsewhere is None
    assert there.elsewhere is not None
    assert [found.evaluations[0].verdict for found in (here, there)] == ["pass", "pass"]
    times = [comparable_ms(found.evaluations[0], found.elsewhere) for found in (here, there)]
    assert times[1] == pytest.approx(times[0], rel=0.1)
