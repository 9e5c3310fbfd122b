"""A run's folder at its beginning: what is copied into it, what makes it a run, and when it is taken back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.atomic import make_durable
from agent.config import Config, dump_config
from agent.errors import ConfigError, UnfitEnvironment
from agent.events import Evaluated, RequestSent
from agent.journal import read_events
from agent.paths import remove_run_folder
from agent.task import Task


def copy_inputs(config: Config, task: Task, folder: Path) -> None:
    """Write `config.yaml`. Baseline and reference travel with the run; everything after reads the copies."""
    section = config.task
    assert section.reference is not None
    try:
        (folder / "baseline").mkdir(parents=True, exist_ok=True)
        kernel = Path("baseline") / f"kernel{task.backend.suffix}"
        reference = Path("baseline") / "reference.py"
        shutil.copyfile(section.baseline, folder / kernel)
        shutil.copyfile(section.reference, folder / reference)
        build = section.build.model_copy(update={"include": task.spec.include})
        copied = section.model_copy(
            update={"baseline": kernel, "reference": reference, "build": build, "backend": task.backend.name}
        )
        dump_config(config.model_copy(update={"task": copied}), folder / "config.yaml")
        (folder / "events.jsonl").touch()
        make_durable(folder)
    except OSError as error:
        raise UnfitEnvironment(
            f"{folder}: cannot write ({error.strerror}); free space or choose another `output`"
        ) from None


def is_run(folder: Path) -> bool:
    """Whether a run was begun in the folder: its log is made last."""
    return (folder / "config.yaml").is_file() and (folder / "events.jsonl").is_file()


@contextmanager
def taken_back_if_empty(folder: Path) -> Iterator[None]:
    """A task that cannot be measured leaves no half of a run: nothing is lost where nothing was measured or asked."""
    try:
        yield
    except (ConfigError, UnfitEnvironment):
        log = folder / "events.jsonl"
        if not log.is_file() or not any(isinstance(e, Evaluated | RequestSent) for e in read_events(log)[0]):
            remove_run_folder(folder)
        raise
