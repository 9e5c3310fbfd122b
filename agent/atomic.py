"""Writing a file so that a reader sees all of it or the one before."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def make_durable(folder: Path) -> None:
    """Have a new folder, all that is in it and its place in the one above on disk, whatever happens to the power.

    Raises:
        OSError: the disk is full or failing.
    """
    for path in (folder.parent, folder, *folder.rglob("*")):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_atomic(path: Path, text: str) -> None:
    """Write a text file (UTF-8, newlines as given), its folder made when missing, durable once this returns.

    Raises:
        OSError: the folder cannot be written or the disk is full; the file before is left as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
