"""A night as its folder tells it to who looks on: `night.jsonl`, of any version, as far as it can be read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.watching.follow import is_instant

NIGHT_LOG = "night.jsonl"
WAITING = 75  # the exit code of a night that waits


@dataclass(frozen=True, slots=True)
class Night:
    """One night.

    Attributes:
        name: its folder's path from the folder of runs.
        began_at, ended_at: UTC, ISO 8601; "" where that has not happened, or is not told.
        exit_code: once it has ended.
        tasks: how many it has, and `tried` how many of them were taken to an end.
        left_with: the exit code of its last process, which left something to be done; None where that was killed.
        page: whether its page is there.
    """

    name: str
    began_at: str
    ended_at: str
    exit_code: int | None
    tasks: int
    tried: int
    left_with: int | None
    page: bool


def read_night(name: str, folder: Path) -> Night:
    """The night in `folder`."""
    events = _events(folder / NIGHT_LOG)
    opened = max((i for i, e in enumerate(events) if e.get("type") == "night_opened"), default=-1)
    after = events[opened + 1 :]
    ends = [e for e in after if e.get("type") == "night_ended"]
    pauses = [e.get("exit_code") for e in after if e.get("type") == "night_paused"]
    names = events[0].get("names") if events else None
    code = ends[-1].get("exit_code") if ends else None
    left_with = pauses[-1] if pauses and not ends else None
    return Night(
        name=name,
        began_at=_at(events[0]) if events else "",
        ended_at=_at(ends[-1]) if ends else "",
        exit_code=code if isinstance(code, int) else None,
        tasks=len(names) if isinstance(names, list) else 0,
        tried=len({str(e.get("task")) for e in events if e.get("type") == "tried"}),
        left_with=left_with if isinstance(left_with, int) else None,
        page=(folder / "index.html").is_file(),
    )


def _at(event: Mapping[str, Any]) -> str:
    at = str(event.get("at", ""))
    return at if is_instant(at) else ""


def _events(path: Path) -> list[dict[str, Any]]:
    """The objects of a log of JSON lines, up to the first that cannot be read."""
    found: list[dict[str, Any]] = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return found
    for line in lines:
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(data, dict):
            break
        found.append(data)
    return found
