"""What a night is asked to do: its tasks, what it may spend, and whom it tells."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationError

from agent.config import Config, explain, load_config, parse_yaml
from agent.config_values import Positive, Section
from agent.errors import ConfigError
from agent.paths import find_config

_YAML = (".yaml", ".yml")


class NightBudget(Section):
    """Shared by all tasks of a night. None: no limit."""

    usd: Positive | None = None
    hours: Positive | None = None


class Job(Section):
    """One task of a night: its file, absolute, and the `--set` options on top of it."""

    config: Path
    overrides: tuple[str, ...] = ()

    def load(self) -> Config:
        """Its config. Raises ConfigError."""
        return load_config(self.config, self.overrides)


class Asked(Section):
    """Everything that makes two nights the same.

    Attributes:
        jobs: the tasks, in the order given.
        budget: shared by them.
        output: where the night's folder and its runs go, absolute.
        on_finish: command that is told when the night has ended.
        on_finish_timeout_s: how long that may take.
    """

    jobs: tuple[Job, ...]
    budget: NightBudget = NightBudget()
    output: Path
    on_finish: str | None = None
    on_finish_timeout_s: float = 60.0

    def fingerprint(self) -> str:
        """Equal for the same command over the same files: an edited task is another night."""
        texts = [hashlib.sha256(_text(job.config)).hexdigest() for job in self.jobs]
        whole = json.dumps([self.model_dump(mode="json"), texts], sort_keys=True)
        return hashlib.sha256(whole.encode()).hexdigest()[:16]


def _named(value: object) -> object:
    """A task by its name alone stands for one without settings of its own."""
    return {"config": value} if isinstance(value, str) else value


class NightTask(Section):
    """A task file, a folder of them, or the name of a shipped one; and what is set on top of it."""

    config: str
    set: tuple[str, ...] = ()


class NightFile(Section):
    """A night in YAML. `set` goes for all tasks."""

    tasks: tuple[Annotated[NightTask, BeforeValidator(_named)], ...]
    set: tuple[str, ...] = ()
    budget: NightBudget = NightBudget()
    output: Path = Path("runs")
    on_finish: str | None = None
    on_finish_timeout_s: Positive = 60.0


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line adds; None leaves it to the file."""

    overrides: tuple[str, ...] = ()
    usd: float | None = None
    hours: float | None = None
    output: Path | None = None
    on_finish: str | None = None


def read_asked(names: Sequence[str], options: Options, say: Callable[[str], None] = lambda text: None) -> Asked:
    """The night that a command line asks for.

    Args:
        names: task files, folders of them and names of shipped ones; or one YAML file with `tasks`.
        options: of the command line, which go before the file's.
        say: told of a folder that holds no task.

    Raises:
        ConfigError: no task, or a file of a night that is wrong. A task file that is wrong is its own task's failure.
    """
    file = NightFile(tasks=tuple(NightTask(config=name) for name in names))
    base: Path | None = None
    nights = [path for name in names if (path := Path(name)).is_file() and "tasks" in _peek(path)]
    if nights:
        if len(names) > 1:
            raise ConfigError(f"{nights[0]}: holds a night; give it alone, and name further tasks in it")
        file, base = _night_file(nights[0]), nights[0].resolve().parent
    jobs: list[Job] = []
    for task in file.tasks:
        found = list(_configs(task.config, base))
        if not found:
            say(f"{task.config}: a folder without a task file")
        jobs += [Job(config=path, overrides=(*file.set, *task.set, *options.overrides)) for path in found]
    if not jobs:
        raise ConfigError("nightly: no task; name task files, or a folder that holds some")
    return Asked(
        jobs=tuple(dict.fromkeys(jobs)),
        budget=NightBudget(usd=options.usd or file.budget.usd, hours=options.hours or file.budget.hours),
        output=(options.output or file.output).absolute(),
        on_finish=options.on_finish or file.on_finish,
        on_finish_timeout_s=file.on_finish_timeout_s,
    )


def _night_file(path: Path) -> NightFile:
    try:
        return NightFile.model_validate(_peek(path))
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error.errors(include_url=False)[0], NightFile)}") from None


def _configs(name: str, base: Path | None) -> Iterator[Path]:
    """The task files that a name stands for; one that is not there stands for itself, and fails when its turn comes."""
    path = (base or Path.cwd()) / name
    if path.is_dir():
        files = sorted(p.resolve() for p in path.iterdir() if p.suffix in _YAML and p.is_file())
        # What cannot be read is somebody's task all the same: it is told, not left out.
        yield from (p for p in files if "task" in (found := _peek(p)) or not found)
    elif path.is_file():
        yield path.resolve()
    else:
        try:
            yield find_config(name).resolve()
        except ConfigError:
            yield path.absolute()


def _peek(path: Path) -> Mapping[str, Any]:
    """The sections of a YAML file; none where it cannot be read."""
    try:
        data = parse_yaml(_text(path).decode(), str(path))
    except (ConfigError, UnicodeDecodeError):
        return {}
    return data if isinstance(data, dict) else {}


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
