"""An append-only log of typed events in one file, synced line by line, and the lock that keeps one process on it."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Generic, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from agent.errors import ConfigError, UnfitEnvironment
from agent.events import Event

T = TypeVar("T", bound=Event)
E = TypeVar("E", bound=Event)


def read_log(path: Path, kinds: TypeAdapter[T], what: str) -> tuple[list[T], int]:
    """All whole events of a log, and the bytes they take. A torn last line (a killed write) is left out.

    Args:
        path: the file.
        kinds: of events.
        what: the log is of, for messages: `run`.

    Raises:
        ConfigError: the log is missing, or damaged before its last line.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); is this a {what} folder?") from None
    events: list[T] = []
    end = 0
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        whole = line.endswith(b"\n")
        try:
            event = kinds.validate_json(line) if whole else None
        except ValidationError:
            raise ConfigError(f"{path}: line {number} is damaged; the {what} cannot be trusted from there on") from None
        if event is None:
            break
        events.append(event)
        end += len(line)
    return events, end


class Log(Generic[T]):
    """Owns one log. Only one process may hold it; a second is told so.

    Raises:
        ConfigError: another process holds it, or it is damaged.
    """

    def __init__(self, path: Path, kinds: TypeAdapter[T], what: str) -> None:
        self.folder = path.parent
        # Unbuffered: what could not be written must not come up again when the file is closed.
        self._file: IO[bytes] = path.open("ab", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise ConfigError(f"{self.folder}: another process is working on this {what}") from None
        self.events, self._end = read_log(path, kinds, what)
        self._file.truncate(self._end)
        self._index: dict[tuple[type[Event], str], T] = {(type(e), e.key): e for e in self.events}
        self._before_s = self.events[-1].elapsed_s if self.events else 0.0
        self._started = time.monotonic()
        self._listeners: list[Callable[[T], None]] = []
        self._lock = threading.RLock()

    @property
    def elapsed_s(self) -> float:
        """Seconds of work, over all sessions: what the clock of the machine says counts for nothing."""
        return self._before_s + time.monotonic() - self._started

    def listen(self, listener: Callable[[T], None]) -> None:
        """Call `listener` with each event from now on."""
        self._listeners.append(listener)

    def find(self, kind: type[E], key: str) -> E | None:
        """The event of this type and key, None if it has not happened."""
        return cast("E | None", self._index.get((kind, key)))

    def all(self, kind: type[E]) -> list[E]:
        """All events of one type, in order."""
        return [e for e in self.events if isinstance(e, kind)]

    def once(self, kind: type[E], key: str, make: Callable[[], E]) -> E:
        """The logged event, or the one that `make` returns, logged."""
        found = self.find(kind, key)
        return found if found is not None else self.append(make())

    def append(self, event: E) -> E:
        """Put an event on disk, synced, then tell the listeners.

        Raises:
            UnfitEnvironment: the disk is full or the folder cannot be written.
        """
        return self.append_all([event])[0]

    def append_all(self, events: Sequence[E]) -> list[E]:
        """Put what was found at once on disk in one write, so that no kill can part it.

        Raises:
            UnfitEnvironment: the disk is full or the folder cannot be written; then none of it stands in the log.
        """
        with self._lock:
            logged = [event.model_copy(update=self._stamp(i)) for i, event in enumerate(events)]
            self._write(b"".join(event.model_dump_json().encode() + b"\n" for event in logged))
            for event in logged:
                known = cast(T, event)
                self.events.append(known)
                self._index[(type(event), event.key)] = known
            for event in logged:
                for listener in self._listeners:
                    listener(cast(T, event))
            return logged

    def _stamp(self, ahead: int) -> dict[str, object]:
        return {
            "seq": len(self.events) + ahead,
            "at": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "elapsed_s": round(self.elapsed_s, 3),
        }

    def _write(self, lines: bytes) -> None:
        try:
            if self._file.write(lines) != len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(self._end)
            raise UnfitEnvironment(f"{self.folder}: cannot write ({error.strerror}); free space, then resume") from None
        self._end += len(lines)

    def close(self) -> None:
        """Release it."""
        self._file.close()
