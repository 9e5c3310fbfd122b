"""Writing what a run leaves for people and scripts. Derived from events: written again on resume, never read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from agent.atomic import write_atomic
from agent.errors import UnfitEnvironment


def write_text(path: Path, text: str) -> None:
    """Write a file, its folder made.

    Raises:
        UnfitEnvironment: the disk is full or the folder cannot be written.
    """
    try:
        write_atomic(path, text)
    except OSError as error:
        raise UnfitEnvironment(
            f"{path}: cannot write ({error.strerror}); free space or choose another `output`"
        ) from None


def read_source(path: Path) -> str:
    """A kernel's text for people and prompts; bytes that are not UTF-8 show as U+FFFD. Builds read the file itself."""
    return path.read_text(encoding="utf-8", errors="replace")


def write_json(path: Path, value: object) -> None:
    """Write a dataclass, a model or plain data as indented JSON."""
    write_text(path, json.dumps(plain(value), indent=2) + "\n")


def plain(value: object) -> Any:
    """JSON data of a dataclass, a model, or a collection of them."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return TypeAdapter(Any).dump_python(value, mode="json")
