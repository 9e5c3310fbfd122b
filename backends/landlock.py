"""Landlock: a thread, and what it starts, opens only the files that it was granted. Needs no privileges.

The packages on PyPI that wrap it are unreleased or young, and the part that is needed here is three system calls.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_ASK_VERSION, _PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _DRIVE = (1 << bit for bit in (0, 1, 2, 3, 14, 15))
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DRIVE
# How many rights over files each version of the interface knows.
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
_NEWEST = 16
_BIND_AND_CONNECT_TCP = 3  # from version 4
_SOCKETS_AND_SIGNALS_OUTSIDE = 3  # from version 6

_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """The interface that this kernel offers; 0 is none."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)))


def restrict(
    tools: Iterable[Path],
    readable: Iterable[Path],
    writable: Iterable[Path],
    listed: Iterable[Path] = (),
    *,
    local_sockets: bool = False,
) -> bool:
    """Confine the calling thread, for good: whether it is.

    What is not there is passed over. Names, sizes and times of files stay visible: what cannot be had is what is in
    them, and their folders' lists.

    Args:
        tools: files and folders to read from and to run programs in.
        readable: to read from alone.
        writable: to read, write, make and remove files in, and devices to drive.
        listed: folders whose lists can be read, and no file.
        local_sockets: whether what is started may connect and be connected to by TCP.
    """
    known = version()
    if known < 2:  # the first one forbids to move a file to another folder, which compilers do
        return False
    handled = (1 << _RIGHTS.get(known, _NEWEST)) - 1
    ports = 0 if local_sockets or known < 4 else _BIND_AND_CONNECT_TCP
    attributes = struct.pack("=3Q", handled, ports, _SOCKETS_AND_SIGNALS_OUTSIDE if known >= 6 else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    rules = _libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0)
    if rules < 0:
        return False
    try:
        reads = _READ_FILE | _READ_DIR
        granted = (
            (tools, reads | _EXECUTE),
            (readable, reads),
            (writable, handled & ~_EXECUTE),
            (listed, _READ_DIR),
        )
        for paths, rights in granted:
            for path in paths:
                _grant(rules, path, rights & handled)
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return bool(_libc.syscall(_RESTRICT_SELF, rules, 0) == 0)
    finally:
        os.close(rules)


def _grant(rules: int, path: Path, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _ON_FILES
        _libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)
