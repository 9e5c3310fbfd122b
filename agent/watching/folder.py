"""What lies in a folder of runs: runs, nights, and which of them somebody is working on."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.watching.follow import is_held
from agent.watching.nights import NIGHT_LOG, Night, read_night

LOG = "events.jsonl"
NIGHT_LOCK = ".nightly.lock"
_DEPTH = 2  # a night may keep its runs in a folder of its own


@dataclass(frozen=True, slots=True)
class Found:
    """One folder.

    Attributes:
        name: its path from the folder of runs, `/` between parts.
        path: where it lies.
        kind: a run, a night, or what began as a run and has no log.
    """

    name: str
    path: Path
    kind: str


def find_all(root: Path) -> list[Found]:
    """Runs and nights beneath `root`, by name. No link is followed: `latest` is a second name, others may lead out."""
    return sorted(_walk(root, "", _DEPTH), key=lambda found: found.name)


def _walk(folder: Path, prefix: str, depth: int) -> Iterator[Found]:
    try:
        with os.scandir(folder) as entries:
            inner = [e for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for entry in inner:
        kind, name = _kind(entry.path), f"{prefix}{entry.name}"
        if kind is not None:
            yield Found(name, Path(entry.path), kind)
        if kind != "run" and depth > 1:
            yield from _walk(Path(entry.path), f"{name}/", depth - 1)


def _kind(path: str) -> str | None:
    if _is_file(f"{path}/{LOG}"):
        return "run"
    if _is_file(f"{path}/{NIGHT_LOG}"):
        return "night"
    return "broken" if os.path.basename(path).startswith("run_") else None


def _is_file(path: str) -> bool:
    """A file itself, no link to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def night_is_on(root: Path, held: Collection[int] | None) -> bool:
    """Whether a process of this machine works on a night whose runs go to `root`."""
    try:
        return held is not None and (root / NIGHT_LOCK).stat().st_ino in held
    except OSError:
        return False


def night_in_hand(root: Path, held: Collection[int] | None) -> str | None:
    """The name of the night beneath `root` that a process works on; None where that cannot be told."""
    nights = [f for f in find_all(root) if f.kind == "night"]
    return next((f.name for f in nights if is_held(f.path / NIGHT_LOG, held)), None)


def newest_night(root: Path) -> Night | None:
    """The night beneath `root` that began last."""
    nights = [read_night(f.name, f.path) for f in find_all(root) if f.kind == "night"]
    return max(nights, key=lambda night: (night.began_at, night.name), default=None)
