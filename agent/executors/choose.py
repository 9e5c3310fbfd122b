"""The executor that a config asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agent.executors.local import LocalExecutor
from agent.executors.types import BuildTask, Executor
from agent.machine import Machine
from agent.task import Task, build_candidate, open_harness
from backends.types import Built, Rejected
from profiling.gpu_device import GpuFacts
from profiling.gpu_others import other_gpus
from profiling.harness.harness import Harness


def open_executor(
    task: Task, machine: Machine, lab: Harness | None, cache: Path, stopped: Callable[[], bool]
) -> Executor:
    """To be closed.

    Args:
        task: the run's, on its machine.
        machine: with the run's own device.
        lab: the run's own harness; None where nothing can be measured.
        cache: the machine-wide folder.
        stopped: whether the run is to stop.

    Raises:
        ToolchainError: a GPU that the task names is not there, or of another model.
        UnfitEnvironment: the cluster cannot be used.
    """
    section = task.config.executor

    def build(one: BuildTask) -> Built | Rejected:
        return build_candidate(task, one.source, one.spec, cache / "builds")

    def open_on(gpu: GpuFacts) -> Harness:
        there = replace(task, problem=replace(task.problem, gpu=gpu.uuid))
        return open_harness(there, machine, cache, stopped=stopped, waiting=lambda: None)

    local = section.kind == "local"
    gpus = other_gpus(machine.gpu, task.config.device.gpus) if local and lab is not None and machine.gpu else ()
    # No more than branches: what a further GPU must learn first would be for nothing.
    gpus = gpus[: max(0, task.config.search.branches - 1)]
    together = local and machine.gpu is not None
    home = LocalExecutor(build, lab, max(1, machine.cpu.usable_cores), gpus, open_on, together=together)
    if local or lab is None:
        return home
    from agent.executors.orders import Writer
    from agent.executors.ray_cluster import RayExecutor

    try:
        return RayExecutor(
            section,
            Writer(task, machine, task.backend.toolchain()),
            home,
            cache / "parcels",
            on_gpu=machine.gpu is not None,
            threads=task.config.device.threads,
            stopped=stopped,
        )
    except BaseException:
        home.close()
        raise
