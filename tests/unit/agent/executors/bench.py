"""A small task on the host, its kernels built, and a machine to measure it on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent.config import load_config
from agent.executors.orders import Writer
from agent.executors.types import BuildTask, Setting
from agent.machine import Machine, find_machine
from agent.task import Task, prepare_task
from backends.types import Built
from tests.loop.scenario import write_task


@dataclass(frozen=True, slots=True)
class Bench:
    """A prepared task in its folder."""

    folder: Path
    task: Task
    machine: Machine
    writer: Writer
    baseline: Built

    @classmethod
    def make(cls, folder: Path) -> Bench:
        """The scenario's task; its baseline includes a header that lies beside it."""
        path = write_task(folder, {"provider": "replay", "answers": "answers"})
        kernel = folder / "kernel.cpp"
        (folder / "zero.h").write_text("#define ZERO 0.0f\n")
        kernel.write_text(f'#include "zero.h"\n{kernel.read_text().replace("= 0.0f", "= ZERO")}')
        task = prepare_task(load_config(path))
        machine = find_machine(task.config, task.backend, print)
        writer = Writer(task, machine, task.backend.toolchain())
        baseline = task.backend.build(task.baseline, task.spec, folder / "home" / "builds")
        assert isinstance(baseline, Built)
        return cls(folder, task, machine, writer, baseline)

    @property
    def setting(self) -> Setting:
        """The baseline, as the best kernel so far."""
        return Setting(self.baseline, self.baseline, None)

    def written(self, name: str, source: str) -> BuildTask:
        """A candidate to be built."""
        path = self.folder / name / "kernel.cpp"
        path.parent.mkdir()
        path.write_text(source)
        return BuildTask(path, self.task.spec)
