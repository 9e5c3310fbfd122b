"""The append-only event log of a run.

The loop asks `once` for every step that costs anything: what the log already holds is returned, the rest is done and
logged. A run killed at any instant is resumed by running the same loop over the same log.
"""

from __future__ import annotations

from pathlib import Path

from agent.events import EVENT, AnyEvent
from agent.log import Log, read_log


def read_events(path: Path) -> tuple[list[AnyEvent], int]:
    """All whole events of a run's log, and the bytes they take. A torn last line (a killed write) is left out.

    Raises:
        ConfigError: the log is missing, or damaged before its last line.
    """
    return read_log(path, EVENT, "run")


class Journal(Log[AnyEvent]):
    """Owns `events.jsonl`. Only one process may hold it; a second is told so.

    Raises:
        ConfigError: another process holds the run, or the log is damaged.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "events.jsonl", EVENT, "run")
