"""Which landscapes there are (`data/landscapes.yaml`), and where their kernels come from: recorded answers or files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from landscape_data import SwitchedKernel
from pydantic import BaseModel, ConfigDict, ValidationError

from agent.config import Config, load_config
from agent.errors import ConfigError
from agent.llm.parse import extract_code, extract_json
from agent.llm.recording import read_recording
from agent.paths import find_config
from agent.plan import Plan, parse_plan
from backends.types import Backend
from prompts.catalogue import load_catalogue, switch_name

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).resolve().parent / "data" / "landscapes.yaml"
MOST_METHODS = 6
_SWITCH = re.compile(r"\bRC_[A-Z0-9_]+\b")
_STEP = re.compile(r"iter(\d+)-(b\d+)")


class Wanted(BaseModel):
    """One entry of the list.

    Attributes:
        config: a shipped task by name, or a task file relative to the repository.
        set: overrides, as `--set` takes them.
        kernels: files relative to the repository, or recorded answers of the task by iteration and branch (`iter2-b0`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: str
    set: tuple[str, ...] = ()
    kernels: tuple[str, ...]

    def load(self) -> Config:
        """The task's config."""
        here = ROOT / self.config
        return load_config(here if here.is_file() else find_config(self.config), self.set)


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A kernel's text and what is known of its switches."""

    about: SwitchedKernel
    text: str


def wanted_landscapes(path: Path = LIST) -> Mapping[str, Wanted]:
    """All entries of the list by name. Raises ConfigError: it is not one."""
    try:
        return {name: Wanted.model_validate(entry) for name, entry in yaml.safe_load(path.read_text()).items()}
    except (ValidationError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None


def read_kernels(wanted: Wanted, config: Config, backend: Backend) -> tuple[KernelSource, ...]:
    """The kernels of an entry, each with the methods that its switches stand for.

    Raises:
        ConfigError: no such answer or file, a switch that is no known method's, none or too many of them.
    """
    found = []
    for name in wanted.kernels:
        step = _STEP.fullmatch(name)
        if step is None:
            path = ROOT / name
            if not path.is_file():
                raise ConfigError(f"{path}: no such file")
            found.append(_kernel(path.stem, name, path.read_text(encoding="utf-8"), {}, backend))
            continue
        answers = config.llm.answers if config.llm else None
        if answers is None:
            raise ConfigError(f"{wanted.config}: has no recorded answers, so no {name}")
        iteration = int(step[1])
        text = _answer(answers, f"iter{iteration}-branch-{step[2]}-0")
        origin = f"{answers.relative_to(ROOT)}/iter{iteration}-branch-{step[2]}-0.json"
        plans = _plans(answers, iteration)
        found.append(_kernel(name, origin, extract_code(text, backend.language), plans, backend))
    return tuple(found)


def _answer(answers: Path, step: str) -> str:
    recording = read_recording(answers, step)
    if recording is None:
        raise ConfigError(f"{answers}: has no recorded answer {step}")
    return recording.reply.text


def _plans(answers: Path, last: int) -> dict[str, dict[str, str | int | float | bool]]:
    """Methods and parameters of all plans up to an iteration; each iteration's last answer is the one that stood."""
    methods: dict[str, dict[str, str | int | float | bool]] = {}
    for iteration in range(1, last + 1):
        attempts = sorted(answers.glob(f"iter{iteration}-plan-*.json"))
        plan = parse_plan(extract_json(_answer(answers, attempts[-1].stem)))
        if isinstance(plan, Plan):
            methods |= {m.id: dict(m.parameters) for m in plan.methods}
    return methods


def _kernel(
    name: str,
    origin: str,
    text: str,
    planned: Mapping[str, dict[str, str | int | float | bool]],
    backend: Backend,
) -> KernelSource:
    known = {switch_name(m.id): m.id for m in load_catalogue().methods if backend.name in m.backends}
    known |= {switch_name(method): method for method in planned}
    switches = [s for s in dict.fromkeys(_SWITCH.findall(text)) if backend.has_switch(text, s)]
    unknown = [s for s in switches if s not in known]
    if unknown:
        raise ConfigError(f"{origin}: {unknown[0]} is no known method's switch")
    if not 1 <= len(switches) <= MOST_METHODS:
        raise ConfigError(f"{origin}: has {len(switches)} switches; a landscape takes 1 to {MOST_METHODS}")
    methods = tuple(known[s] for s in switches)
    parameters = {m: planned[m] for m in methods if planned.get(m)}
    digest = hashlib.sha256(text.encode()).hexdigest()
    about = SwitchedKernel(name=name, origin=origin, sha256=digest, methods=methods, parameters=parameters)
    return KernelSource(about, text)
