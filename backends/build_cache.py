"""Finished builds on disk, one folder per key, that appear whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_RECORD = "build.json"
_PRIVATE = ".build-"


@dataclass(frozen=True, slots=True)
class Entry:
    """A finished build: the absolute artifact, the command that made it and what the compiler said."""

    artifact: Path
    command: tuple[str, ...]
    log: str


@contextmanager
def private_folder(cache: Path) -> Iterator[Path]:
    """A new folder inside `cache`, on the same file system as the entries, removed afterwards.

    Raises:
        OSError: `cache` cannot be made or written.
    """
    cache.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=_PRIVATE, dir=cache.resolve()))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def load(cache: Path, key: str, artifact: str) -> Entry | None:
    """The build under `key`, or None where there is none or it is not whole."""
    folder = cache.resolve() / key
    try:
        record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        command, log = tuple(str(word) for word in record["command"]), str(record["log"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    built = folder / artifact
    return Entry(built, command, log) if built.is_file() else None


def store(cache: Path, key: str, artifact: Path, command: tuple[str, ...], log: str) -> Path:
    """Publish `artifact`, which lies in a private folder, under `key`; where an equal build came first, that one stays.

    Returns:
        The artifact's absolute path in the cache.

    Raises:
        OSError: the entry cannot be written.
    """
    staged = artifact.parent / "entry"
    staged.mkdir()
    artifact.rename(staged / artifact.name)
    (staged / _RECORD).write_text(json.dumps({"command": command, "log": log}), encoding="utf-8")
    folder = cache.resolve() / key
    for _ in range(3):
        try:
            os.rename(staged, folder)  # atomic, and refused when a folder with content is there
            break
        except OSError:
            if load(cache, key, artifact.name) is not None:
                break
            if not folder.exists():
                raise
            # Left half-written by something else than this module: move it away, whoever else is here does the same.
            shutil.rmtree(folder, ignore_errors=True)
    return folder / artifact.name
