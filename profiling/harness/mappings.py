"""What code a worker has in memory: a kernel may run its own and the run-time's, and nobody else's product."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from backends.dependencies import foreign_libraries, is_runtime
from backends.types import ToolchainError

# The candidate comes over as a file in memory, of this name (profiling/native/walls.cpp).
_CANDIDATE = "/memfd:candidate"
# What the NVIDIA driver and the CUDA run-time bring along; mathematics libraries are not among it.
_CUDA = ("libcuda.", "libcudart.", "libnvidia-")


class Mappings:
    """Libraries that a worker maps without being linked against them.

    Args:
        artifact: the candidate. What it is openly linked against is the task's to allow, and was checked before.
        expects: whether a file is a part of the worker itself, or of the candidate's own build.
    """

    def __init__(self, artifact: Path, expects: Callable[[str], bool]) -> None:
        self._expects = expects
        self._known: frozenset[str] = frozenset()
        self._seen = b""
        try:
            self._linked = foreign_libraries(artifact, ())
        except ToolchainError:
            self._linked = ()  # not a library at all: loading it says so

    def loaded(self, pid: int) -> str | None:
        """As the candidate was loaded: a library that it is not linked against, or None."""
        if self._linked:
            # A library that the task allows brings others of its own: all that came with it is known.
            self._known = executable_files(pid)
        return self.called(pid)

    def called(self, pid: int) -> str | None:
        """After a call: a library that came in some other way than by being linked, or None."""
        maps = _maps(pid)
        if maps == self._seen:  # as after the last call, which was in order
            return None
        found = (path for path in _code_files(pid, maps) - self._known if _is_foreign(path) and not self._expects(path))
        library = min(found, default=None)
        self._seen = maps if library is None else b""
        return library


def _maps(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return b""


def executable_files(pid: int) -> frozenset[str]:
    """Files that a process has mapped as code beside its own program; none where the kernel hides them from us."""
    return _code_files(pid, _maps(pid))


def _code_files(pid: int, maps: bytes) -> frozenset[str]:
    try:
        program = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return frozenset()
    lines = maps.decode(errors="replace").splitlines()
    fields = [line.split(None, 5) for line in lines]
    return frozenset(f[5] for f in fields if len(f) == 6 and "x" in f[1] and f[5].startswith("/")) - {program}


def _is_foreign(path: str) -> bool:
    name = path.removesuffix(" (deleted)").rpartition("/")[2]
    return not path.startswith((_CANDIDATE, "/dev/nvidia")) and not is_runtime(name) and not name.startswith(_CUDA)
