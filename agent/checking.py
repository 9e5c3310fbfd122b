"""`check`: what this machine can do, and whether a task's contract holds; no model is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.artefacts import plain, write_json, write_text
from agent.config import load_config
from agent.errors import ConfigError
from agent.faults import as_exit_codes
from agent.paths import cache_folder, find_config
from agent.task import Task, limits, measure_settings, prepare_task, require_fit
from backends.registry import get_backend
from backends.types import Rejected
from profiling.counters import counter_source
from profiling.device import cpu_facts
from profiling.environment import inspect_environment, to_markdown
from profiling.harness.harness import Harness
from profiling.types import TaskCheck


def check(config: str | None, overrides: Sequence[str], output: Path) -> tuple[Mapping[str, Any], str]:
    """Write `env.json` and `env.md`; with a config, test its task as a run would before the first answer.

    Raises:
        ConfigError: the task is unfit.
        UnfitEnvironment: the machine is.
    """
    task = None if config is None else prepare_task(load_config(find_config(config), overrides))
    found, layers = (None, {}) if task is None else _check_task(task)
    with as_exit_codes():
        tools = (task.backend if task else get_backend("cpp")).toolchain()
    environment = inspect_environment(tools, counter_source(), layers)
    text = to_markdown(environment)
    write_json(output / "env.json", environment)
    write_text(output / "env.md", text)
    result = {"environment": plain(environment), "task": None if found is None else plain(found)}
    if task is not None and found is not None:
        text += f"\n\nThe task {task.problem.name} holds: wrong answers are rejected ({', '.join(found.rejected)})."
    return result, text


def _check_task(task: Task) -> tuple[TaskCheck, dict[str, bool]]:
    if task.problem.reference is None:
        raise ConfigError("task.reference: is missing; without a reference nothing can be checked")
    cache = cache_folder()
    with as_exit_codes():
        require_fit(task, cpu_facts())
        built = task.backend.build(task.baseline, task.spec, cache / "builds")
        if isinstance(built, Rejected):
            raise ConfigError(f"the baseline {task.baseline} does not build: {built.reason}")
        settings = measure_settings(task.config)
        with Harness(task.problem, settings, limits(task.config), cache / "harness") as harness:
            return harness.check_task(built.artifact), dict(harness.layers())
