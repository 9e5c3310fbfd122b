"""Reading a run's log while another process writes it: what is new, cheaply, and whether anybody is at work on it.

Nothing here locks or writes: who looks on must not be able to disturb a run.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from agent.events import EVENT, AnyEvent

_LOCKS = Path("/proc/locks")


class Follower:
    """The events of one log, as they come.

    Attributes:
        generation: goes up when the log was replaced or cut, so that what was read before no longer counts.
        problem: why nothing (more) can be read; None while all is well.
        skipped: whole events that this version does not know; an older or newer one wrote them.
    """

    def __init__(self, log: Path) -> None:
        self.log = log
        self.generation = 0
        self.problem: str | None = None
        self.skipped = 0
        self._seen: tuple[int, int, int] | None = None
        self._end = 0
        self._lines = 0

    def poll(self) -> list[AnyEvent]:
        """The events since the last call, from the start after a change of `generation`. A torn last line waits."""
        try:
            facts = os.stat(self.log)
            seen = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
            if seen == self._seen:
                return []
            if self._seen is not None and (facts.st_ino != self._seen[0] or facts.st_size < self._end):
                self._start_over()
            with self.log.open("rb") as file:
                file.seek(self._end)
                data = file.read()
        except OSError as error:
            self.problem = f"events.jsonl cannot be read ({error.strerror})"
            return []
        self._seen = seen
        return self._take(data)

    def _start_over(self) -> None:
        self.generation += 1
        self.problem = None
        self.skipped = self._end = self._lines = 0

    def _take(self, data: bytes) -> list[AnyEvent]:
        if self.problem is not None and self._end:
            return []  # damaged further up
        self.problem = None
        events = []
        for line in data.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            event = _event(line)
            if event is None:
                self.problem = f"events.jsonl is damaged at line {self._lines + 1}"
                break
            self._end += len(line)
            self._lines += 1
            if isinstance(event, str):
                self.skipped += 1
            else:
                events.append(event)
        return events


def _event(line: bytes) -> AnyEvent | str | None:
    """The event; the type of one that this version cannot read; None where it is no event at all."""
    try:
        event = EVENT.validate_json(line)
        return event if is_instant(event.at) and 0 <= event.elapsed_s < math.inf else None
    except ValidationError:
        pass
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    kind = data.get("type") if isinstance(data, dict) else None
    return kind if isinstance(kind, str) else None


def is_instant(text: str) -> bool:
    """Whether this is a time as a log has it, with its zone."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def held_files() -> frozenset[int] | None:
    """The inodes of files that a process of this machine holds with `flock`; None where the kernel does not say.

    Read from /proc/locks. Trying the lock would tell as well, and keep a run that starts at that moment from its log.
    """
    try:
        text = _LOCKS.read_text()
    except OSError:
        return None
    held = set()
    for words in map(str.split, text.splitlines()):
        # 1: FLOCK  ADVISORY  WRITE 803 fe:00:1234 0 EOF; who waits for a lock has "->" before FLOCK
        if len(words) > 5 and words[1] == "FLOCK" and words[3] == "WRITE":
            held.add(int(words[5].rpartition(":")[2]))
    return frozenset(held)


def is_held(log: Path, held: Collection[int] | None) -> bool | None:
    """Whether a process of this machine works on the run of this log; None where that cannot be told."""
    if held is None:
        return None
    try:
        return os.stat(log).st_ino in held
    except OSError:
        return False
