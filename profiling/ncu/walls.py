"""Walls around ncu and the program under it: files and the network, as far as counters can be read behind them.

Reading counters takes devices and rights that a worker's walls take away, and which files a version of ncu wants is not
written anywhere. So it is tried: `first_walled` reads a counter of a program of ours behind these walls, and only where
that succeeded do later runs of this process have them. Nothing else decides. Without them: let `around` return None.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from backends import landlock
from backends.walls import Walls

_Read = TypeVar("_Read")

_NEW_NETWORK = 0x40000000
_SET_FLAGS, _UP_AND_RUNNING = 0x8914, 0x41
_OURS = Path(__file__).resolve().parents[2]
_SYSTEM = ("/proc", "/sys", "/run", "/opt/nvidia", "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf")

_libc = ctypes.CDLL(None, use_errno=True)


class _Tried:
    stand = False


@dataclass(frozen=True, slots=True)
class ProfilerWalls(Walls):
    """Landlock, and a network of its own where that is granted: ncu speaks to the program under it by sockets."""

    def enter(self) -> None:
        """Confine the calling thread for good. Capabilities stay: counters are read by them."""
        if _libc.unshare(_NEW_NETWORK) == 0:
            _bring_up_loopback()
        self.restrict_files(local_sockets=True)


def around(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None) -> Walls | None:
    """The walls for a run of ncu that writes to `folder`; None where they were not tried, or did not do."""
    if not _Tried.stand:
        return None
    named = [*command, *(part for value in (environment or {}).values() for part in value.split(os.pathsep))]
    paths = {Path(word).resolve() for word in named if word.startswith("/")}
    python = {Path(name).resolve() for name in (sys.prefix, sys.base_prefix, *filter(None, sys.path))}
    devices = (*Path("/dev").glob("nvidia*"), Path("/dev/shm"))
    return ProfilerWalls(
        writable=(folder, *devices),
        readable=tuple(map(Path, _SYSTEM)),
        tools=(*((paths | python) - {_OURS, Path("/")}), _OURS / "profiling", _OURS / "backends"),
        listed=(_OURS,),
    )


def note() -> str:
    """What a profile says of them."""
    return "behind walls" if _Tried.stand else "without walls"


def first_walled(read: Callable[[], _Read], done: Callable[[_Read], bool]) -> _Read:
    """What `read` gives behind walls, which then stay for this process; where it is not `done`, without."""
    _Tried.stand = landlock.version() > 0
    found = read()
    if not _Tried.stand or done(found):
        return found
    _Tried.stand = False
    return read()


def _bring_up_loopback() -> None:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            fcntl.ioctl(control, _SET_FLAGS, struct.pack("=16sH22x", b"lo", _UP_AND_RUNNING))
    except OSError:
        pass  # then a tool that needs it fails the trial
