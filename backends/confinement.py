"""Walls around a child process that runs a kernel's own code while it is built: it may write in one folder alone."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from pathlib import Path

_NEW_NAMESPACE, _NEW_USER, _NEW_PID = 0x20000, 0x10000000, 0x20000000
_APART = (0x40000000, 0x08000000, _NEW_PID)  # network, IPC, processes
_RECURSIVE_PRIVATE, _RECURSIVE_BIND = 0x44000, 0x5000
_NO_SETUID_DEV_EXEC = 2 | 4 | 8
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _READ_ONLY = 442, -100, 0x8000, 1
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_SIGNALLED = 128
_CAPABILITIES = struct.pack("=Ii", 0x20080522, 0)

_libc = ctypes.CDLL(None, use_errno=True)


def confine(writable: Path) -> None:
    """Go on in a process without network, without sight of other processes, that can write below `writable` alone.

    Walls that this system does not grant are left out. The process that called waits, and ends in the same way.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.geteuid() != 0 and not _own_user():
        return
    for namespace in _APART:
        _libc.unshare(namespace)
    mounts = _libc.unshare(_NEW_NAMESPACE) == 0
    first = os.fork()
    if first > 0:
        status = _status(first)
        if status > _SIGNALLED:
            _die_of(status - _SIGNALLED)
        os._exit(status)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if mounts:
        _read_only_but(os.fsencode(writable))
    # The first process of a namespace does not die of most signals, so the work is done in another.
    second = os.fork()
    if second > 0:
        os._exit(_status(second))
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _libc.capset(_CAPABILITIES, bytes(24))


def _own_user() -> bool:
    uid, gid = os.geteuid(), os.getegid()
    if _libc.unshare(_NEW_USER) != 0:
        return False
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    except OSError:
        return False
    return True


def _read_only_but(writable: bytes) -> None:
    def read_only(path: bytes, flags: int, yes: bool) -> None:
        attributes = struct.pack("=4Q", _READ_ONLY if yes else 0, 0 if yes else _READ_ONLY, 0, 0)
        _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, path, flags, attributes, len(attributes))

    if _libc.mount(None, b"/", None, _RECURSIVE_PRIVATE, None) != 0:
        return
    if _libc.mount(writable, writable, None, _RECURSIVE_BIND, None) != 0:
        return
    read_only(b"/", _AT_RECURSIVE, True)
    read_only(writable, 0, False)
    _libc.mount(b"proc", b"/proc", b"proc", _NO_SETUID_DEV_EXEC, None)
    os.chdir(writable)  # the folder that this process was in lies below the mount


def _status(pid: int) -> int:
    """How a child ended, as a shell would report it. Nothing else is kept open meanwhile."""
    os.closerange(0, os.sysconf("SC_OPEN_MAX"))
    how = os.waitpid(pid, 0)[1]
    return _SIGNALLED + os.WTERMSIG(how) if os.WIFSIGNALED(how) else os.WEXITSTATUS(how)


def _die_of(number: int) -> None:
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
