"""For every process that runs a Triton kernel's own code: loading it, saying where it failed, frozen autotuners."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

from triton.runtime.autotuner import Autotuner, Config

from backends.triton_artifact import Choices

MODULE = "kernel"
"""The name under which kernels are imported: Triton's cache keys hold it."""


def load(path: Path) -> ModuleType:
    """Import a kernel's file."""
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return module


def scalar(dtype: str, value: int | float | bool | None) -> int | float | bool:
    """The Python value of a by-value argument: Triton compiles another kernel for 1 than for 1.0 or True."""
    assert value is not None
    if dtype == "bool":
        return bool(value)
    return float(value) if dtype.startswith("float") else int(value)


def located(error: BaseException, path: Path) -> str:
    """`kernel.py:12: ValueError: …`, with the last line of the kernel's file that was on the stack."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path.name}:{error.lineno}: SyntaxError: {error.msg}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    line = f":{frames[-1].lineno}" if frames else ""
    said = (str(error).strip().splitlines() or [""])[0]
    return f"{path.name}{line}: {type(error).__name__}: {said}".rstrip(": ")


def identity(tuner: Autotuner) -> str:
    """A name for an autotuner that is the same in every process: its kernel's, and a digest of its configurations."""
    digest = hashlib.sha256(repr([str(config) for config in tuner.configs]).encode())
    return f"{tuner.base_fn.__name__}-{digest.hexdigest()[:12]}"


class Asked(dict[object, Config]):
    """An autotuner's cache that knows the key it was asked for, and tells of one that it lacks.

    Attributes:
        asked: the key last looked up, as text.
    """

    def __init__(self, known: Mapping[object, Config], missing: Callable[[], None]) -> None:
        super().__init__(known)
        self._missing = missing
        self.asked = ""

    def __contains__(self, key: object) -> bool:
        self.asked = str(key)
        if super().__contains__(key):
            return True
        self._missing()
        return False


class _Frozen(dict[object, Config]):
    """An autotuner's cache in which every choice is made: it never times anything again."""

    def __init__(self, name: str, chosen: Mapping[str, Config]) -> None:
        super().__init__()
        self._name = name
        self._chosen = chosen

    def __contains__(self, key: object) -> bool:
        if str(key) not in self._chosen:
            raise RuntimeError(f"autotuner {self._name} is asked for {key}, which it was not tuned for before timing")
        return True

    def __getitem__(self, key: object) -> Config:
        return self._chosen[str(key)]


class Autotuning:
    """Makes the autotuners of the kernel that this process will import use what was chosen, or notes what they choose.

    Args:
        choices: by autotuner and key; None lets them choose.
    """

    def __init__(self, choices: Choices | None) -> None:
        self._seen: list[Autotuner] = []
        original = Autotuner.run

        def run(tuner: Autotuner, *args: object, **kwargs: object) -> object:
            self._seen.append(tuner)
            if choices is not None and len(tuner.configs) > 1:
                name = identity(tuner)
                chosen = {key: tuner.configs[index] for key, index in choices.get(name, {}).items()}
                tuner.cache = _Frozen(name, chosen)
            tuner.run = original.__get__(tuner)  # from its second run on it is Triton's own
            return tuner.run(*args, **kwargs)

        Autotuner.run = run

    def chosen(self) -> dict[str, dict[str, int]]:
        """What they chose so far, as `choices`."""
        found: dict[str, dict[str, int]] = {}
        for tuner in self._seen:
            for key, config in tuner.cache.items():
                found.setdefault(identity(tuner), {})[str(key)] = tuner.configs.index(config)
        return found
