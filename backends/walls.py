"""Walls around a program that reads a candidate: it opens its own folder and the toolchain, and no connection.

They are put up in a thread made for it, and the program that the thread starts inherits them: no launcher, no
privileges and next to no time. What this system does not grant is left out, and `layers` says what is.
"""

from __future__ import annotations

import ctypes
import functools
import os
import socket
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from backends import call_filter, landlock

_Made = TypeVar("_Made")

# Programs, libraries, headers and what the loader and the C library read.
_SYSTEM = tuple(
    Path(name)
    for name in (
        *("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/nix/store", "/gnu/store"),
        *("/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime"),
        *("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"),
    )
)
_NULL = Path("/dev/null")
# With them root reads another user's headers. All other powers go.
_CAP_DAC = 1 << 1 | 1 << 2
_CAPABILITIES_V3 = struct.pack("=Ii", 0x20080522, 0)

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Walls:
    """What a program may open, beside the system's own programs, libraries and headers.

    Attributes:
        writable: folders to read and write.
        readable: files and folders to read.
        tools: files and folders to read, and to run programs from.
        listed: folders whose lists can be read, and no file.
        hidden: what stays out of reach though it lies in one of the others. The user's home always does.
    """

    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    tools: tuple[Path, ...] = ()
    listed: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()

    def enter(self) -> None:
        """Confine the calling thread for good, as far as the system grants it."""
        _drop_capabilities()
        self.restrict_files()
        call_filter.refuse_sockets()

    def restrict_files(self, *, local_sockets: bool = False) -> bool:
        """The part of `enter` that is about files: whether the system grants it."""
        hidden = (Path(os.path.expanduser("~")), *self.hidden)
        return landlock.restrict(
            _apart(_existing((*_SYSTEM, *self.tools)), hidden),
            _apart(_existing(self.readable), hidden),
            (*self.writable, _NULL),
            self.listed,
            local_sockets=local_sockets,
        )

    def start(self, make: Callable[[], _Made]) -> _Made:
        """What `make`, called behind these walls, returns: a process, say. The caller stays outside."""
        with ThreadPoolExecutor(1, initializer=self.enter) as thread:
            return thread.submit(make).result()

    def admits(self, path: Path) -> bool:
        """Whether `path` is a plain file in one of these places, or the system's: what a header must be."""
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):
            return False
        open_places = _existing((*_SYSTEM, *self.writable, *self.readable, *self.tools))
        return real.is_file() and any(real.is_relative_to(place) for place in open_places)

    def with_tools(self, tools: Sequence[Path]) -> Walls:
        """The same, and more tools."""
        return replace(self, tools=(*self.tools, *tools))


@functools.cache
def layers() -> Mapping[str, bool]:
    """Which walls stand around builds here: `find_layers`, asked once."""
    return find_layers()


def find_layers() -> Mapping[str, bool]:
    """Which walls stand around what the calling thread starts, found by running into them."""
    with tempfile.TemporaryDirectory(prefix="roofclimb-") as folder:
        secret, own = Path(folder, "secret"), Path(folder, "own")
        own.mkdir()
        secret.write_text("secret", encoding="utf-8")
        (own / "readable").write_text("readable", encoding="utf-8")
        return Walls(writable=(own,)).start(
            lambda: {
                "build_files": _refused(secret.read_bytes)
                and _refused(lambda: secret.write_text("forged", encoding="utf-8"))
                and not _refused((own / "readable").read_bytes),
                "build_network": _refused(lambda: socket.socket().close()),
            }
        )


def _refused(action: Callable[[], object]) -> bool:
    try:
        action()
    except PermissionError:
        return True
    return False


def _existing(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        try:
            yield path.resolve(strict=True)
        except (OSError, RuntimeError):
            continue


def _apart(paths: Iterable[Path], hidden: Sequence[Path]) -> Iterator[Path]:
    """`paths`, and for a folder that holds a hidden thing its other entries, without links and dot files.

    What lies deeper than a hidden folder was named on purpose, and stays.
    """
    secrets = list(_existing(hidden))
    for path in paths:
        if any(secret.is_relative_to(path) for secret in secrets):
            yield from _entries(path, secrets)
        else:
            yield path


def _entries(folder: Path, secrets: Sequence[Path]) -> Iterator[Path]:
    try:
        entries = [Path(entry.path) for entry in os.scandir(folder) if not entry.is_symlink()]
    except OSError:
        return
    # A database has companions.
    closed = {f"{secret}{end}" for secret in secrets for end in ("", "-wal", "-shm", "-journal")}
    yield from _apart((e for e in entries if not e.name.startswith(".") and str(e) not in closed), secrets)


def _drop_capabilities() -> None:
    held = ctypes.create_string_buffer(24)
    if _libc.capget(_CAPABILITIES_V3, held) == 0:
        kept = struct.unpack("=6I", held.raw)[1] & _CAP_DAC
        _libc.capset(_CAPABILITIES_V3, struct.pack("=6I", kept, kept, 0, 0, 0, 0))
