"""Finished builds on disk, one folder per key, that appear whole or not at all.

Scratch folders lie among them, each locked by the process that works in it. What a killed process left is removed by
the next one, and so are builds that nobody used for 30 days.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from backends.types import KernelResources

_RECORD = "build.json"
_SCRATCH = (".build-", "harness-")
_KEY = re.compile(r"[0-9a-f]{24,64}")
_UNUSED_S = 30 * 86400.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A finished build: the absolute artifact, the command that made it and what the compiler said."""

    artifact: Path
    command: tuple[str, ...]
    log: str
    resources: tuple[KernelResources, ...]


@contextmanager
def private_folder(cache: Path, prefix: Literal[".build-", "harness-"] = ".build-") -> Iterator[Path]:
    """A new folder inside `cache`, on the same file system as the entries, removed afterwards.

    The first one that a process asks for in `cache` tidies it too.

    Raises:
        OSError: `cache` cannot be made or written.
    """
    cache.mkdir(parents=True, exist_ok=True)
    _tidy_once(cache.resolve())
    work, lock = _locked_folder(cache.resolve(), prefix)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        os.close(lock)


def tidy(cache: Path) -> None:
    """Remove scratch folders that nobody holds, and builds that nobody used for 30 days.

    What cannot be removed stays, and so does all scratch on a file system without locks.
    """
    for folder in list(cache.iterdir()):
        try:
            if folder.name.startswith(_SCRATCH):
                _remove_abandoned(folder)
            elif _KEY.fullmatch(folder.name) and time.time() - folder.stat().st_mtime > _UNUSED_S:
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue


def mark_used(folder: Path) -> None:
    """Count the 30 days of a build anew, where the folder is ours to change."""
    try:
        os.utime(folder)
    except OSError:
        pass


@functools.cache
def _tidy_once(cache: Path) -> None:
    tidy(cache)


def _locked_folder(cache: Path, prefix: str) -> tuple[Path, int]:
    """A new folder and the descriptor that holds its lock, which goes with the process."""
    while True:
        work = Path(tempfile.mkdtemp(prefix=prefix, dir=cache))
        try:
            lock = os.open(work, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another process tidied it away before the lock was taken
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            pass  # no locks on this file system: then nobody tidies there either
        if work.exists():
            return work, lock
        os.close(lock)


def _remove_abandoned(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def load(cache: Path, key: str, artifact: str) -> Entry | None:
    """The build under `key`, or None where there is none or it is not whole. A build so found counts as used now."""
    folder = cache.resolve() / key
    try:
        record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        command, log = tuple(str(word) for word in record["command"]), str(record["log"])
        resources = tuple(KernelResources(**kernel) for kernel in record["resources"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    built = folder / artifact
    mark_used(folder)
    return Entry(built, command, log, resources) if built.exists() else None


def store(
    cache: Path,
    key: str,
    artifact: Path,
    command: tuple[str, ...],
    log: str,
    resources: Sequence[KernelResources] = (),
) -> Path:
    """Publish `artifact`, which lies in a private folder, under `key`; where an equal build came first, that one stays.

    Returns:
        The artifact's absolute path in the cache.

    Raises:
        OSError: the entry cannot be written.
    """
    staged = artifact.parent / "entry"
    staged.mkdir()
    artifact.rename(staged / artifact.name)
    record = {"command": command, "log": log, "resources": [asdict(kernel) for kernel in resources]}
    (staged / _RECORD).write_text(json.dumps(record), encoding="utf-8")
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
