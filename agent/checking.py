"""`check`: what this machine can do, and whether a task's contract holds; no model is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.artefacts import plain, write_json, write_text
from agent.config import load_config
from agent.errors import ConfigError
from agent.faults import as_exit_codes
from agent.machine import Machine, find_machine, here, look_at, say_warning
from agent.paths import cache_folder, find_config
from agent.task import Task, on_machine, open_harness, prepare_task, tune
from backends.registry import get_backend
from backends.types import Rejected
from profiling.environment import to_markdown
from profiling.findings import TaskCheck


def check(config: str | None, overrides: Sequence[str], output: Path) -> tuple[Mapping[str, Any], str]:
    """Write `env.json` and `env.md`; with a config, test its task as a run would before the first answer.

    Raises:
        ConfigError: the task is unfit.
        UnfitEnvironment: the machine is.
    """
    task = None if config is None else prepare_task(load_config(find_config(config), overrides))
    with as_exit_codes():
        if task is None:
            backend, machine = get_backend("cpp"), here()
            found: TaskCheck | None = None
            layers: Mapping[str, bool] = {}
        else:
            backend, machine = task.backend, find_machine(task.config, task.backend, say_warning)
            found, layers = _check_task(on_machine(task, machine), machine)
        environment = look_at(machine, backend, layers, cache_folder())
    text = to_markdown(environment)
    write_json(output / "env.json", environment)
    write_text(output / "env.md", text)
    result = {"environment": plain(environment), "task": None if found is None else plain(found)}
    if task is not None and found is not None:
        text += f"\n\nThe task {task.problem.name} holds: wrong answers are rejected ({', '.join(found.rejected)})."
    return result, text


def _check_task(task: Task, machine: Machine) -> tuple[TaskCheck, Mapping[str, bool]]:
    if task.problem.reference is None:
        raise ConfigError("task.reference: is missing; without a reference nothing can be checked")
    cache = cache_folder()
    built = task.backend.build(task.baseline, task.spec, cache / "builds")
    if isinstance(built, Rejected):
        raise ConfigError(f"the baseline {task.baseline} does not build: {built.reason}")
    with open_harness(task, machine, cache) as harness:
        ready = tune(task.backend, harness, built, cache / "builds")
        if isinstance(ready, Rejected):
            raise ConfigError(f"the baseline {task.baseline} is not usable: {ready.reason}")
        return harness.check_task(ready.artifact), harness.layers()
