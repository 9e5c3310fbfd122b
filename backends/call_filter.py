"""A filter that refuses system calls to a thread and what it starts. Needs no privileges."""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from collections.abc import Iterable

_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _ALLOW_SPECULATION = 1, 4  # without the second, older kernels slow every store down
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in struct seccomp_data
_X32 = 0x40000000

# The architecture's id; the numbers of seccomp, socket, ptrace, process_vm_readv and process_vm_writev.
_TABLES = {
    "x86_64": (0xC000003E, 317, (41, 101, 310, 311)),
    "aarch64": (0xC00000B7, 277, (198, 117, 270, 271)),
}
_IO_URING_SETUP, _PIDFD_GETFD = 425, 438  # by these, sockets can be made and taken without the call of that name

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def refuse_sockets() -> bool:
    """No connection, and no look into other processes, for the calling thread and for good: whether it is so."""
    table = _TABLES.get(platform.machine())
    return table is not None and refuse((*table[2], _IO_URING_SETUP, _PIDFD_GETFD))


def refuse(numbers: Iterable[int]) -> bool:
    """These system calls fail in the calling thread, for good, and so do other architectures': whether they do."""
    table = _TABLES.get(platform.machine())
    if table is None:
        return False
    architecture, seccomp, _ = table
    steps = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _REFUSE)]
    steps += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _REFUSE)]
    for number in numbers:
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    steps.append((_RETURN, 0, 0, _ALLOW))
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    program = _Program(len(steps), code)
    return bool(_libc.syscall(seccomp, _SET_MODE_FILTER, _ALLOW_SPECULATION, ctypes.byref(program)) == 0)
