"""What a candidate may have left behind."""

from __future__ import annotations

import time
from pathlib import Path

SCRATCH = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))


def still_running(folder: Path) -> list[bytes]:
    """Command lines of processes that name the folder, in which a worker's program lies; its children have its line.

    What was killed may take a moment to end.
    """
    deadline = time.monotonic() + 5.0
    while (found := _running(folder)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def _running(folder: Path) -> list[bytes]:
    lines = (_command_line(p) for p in Path("/proc").iterdir() if p.name.isdigit())
    return [line for line in lines if str(folder).encode() in line]


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def files_named(mark: str) -> list[Path]:
    """Files of the places that any process may write to, by the beginning of their names."""
    return [path for folder in SCRATCH for path in folder.glob(f"{mark}*")]
