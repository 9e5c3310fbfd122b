"""One night at a time in a folder.

The kernel holds the lock and drops it with the process that held it, however that ended: a reboot or a process id that
was given out again cannot leave one behind. What stands in the file is for people.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.errors import UnfitEnvironment

LOCK = ".nightly.lock"


class Holder(BaseModel):
    """Who holds the lock. `boot` and `ticks` (its start, in clock ticks after boot) tell `pid` from a later one."""

    model_config = ConfigDict(frozen=True)

    host: str
    boot: str
    pid: int
    ticks: int
    since: str


@contextmanager
def only_night(output: Path) -> Iterator[None]:
    """Keep other nights out of `output` while this block runs.

    Raises:
        UnfitEnvironment: a night is running there, or the folder cannot be locked.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(output / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UnfitEnvironment(f"{output}: cannot be written ({error.strerror}); choose another --output") from None
    try:
        _take(descriptor, output)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, output: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UnfitEnvironment(
            f"{output}: a night is running there already{_told(descriptor)}; wait for it, or give another --output"
        ) from None
    except OSError as error:
        raise UnfitEnvironment(f"{output / LOCK}: cannot be locked ({error.strerror}); use a local disk") from None
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, (_us().model_dump_json() + "\n").encode(), 0)
    except OSError:  # a full disk: the lock is held all the same
        pass


def _us() -> Holder:
    return Holder(
        host=socket.gethostname(),
        boot=_boot(),
        pid=os.getpid(),
        ticks=_ticks(os.getpid()) or 0,
        since=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def _told(descriptor: int) -> str:
    """Who it is, as far as the file can be believed."""
    try:
        holder = Holder.model_validate_json(os.pread(descriptor, 4096, 0))
    except ValidationError:
        return ""
    if holder.host != socket.gethostname():
        return f" (on {holder.host}, since {holder.since})"
    alive = holder.boot == _boot() and holder.ticks == _ticks(holder.pid)
    # Another process than the one that wrote the file: it took the lock and has not written yet.
    return f" (process {holder.pid}, since {holder.since})" if alive else ""


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _ticks(pid: int) -> int | None:
    """When a process began, in clock ticks after boot; None where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])
