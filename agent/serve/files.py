"""Files of a folder of runs, as far as a page may show them: nothing outside of it, nothing hidden, no settings."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

# Settings hold addresses of databases and how keys are come by; a page shows them with that taken out.
_NEVER = frozenset(("config.yaml",))
_LARGEST = 64 << 20
_TEXT = "text/plain; charset=utf-8"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    **dict.fromkeys((".md", ".txt", ".log", ".csv", ".cu", ".cuh", ".cpp", ".py", ".h", ".hpp"), _TEXT),
}


@dataclass(frozen=True, slots=True)
class Served:
    """One file as it is sent."""

    content: bytes
    media_type: str


def read_file(root: Path, name: str) -> Served | None:
    """The file `name` beneath `root`; None where there is none that may be shown.

    Args:
        root: the folder of runs, resolved.
        name: a path with `/` between its parts, as a browser sent it.
    """
    parts = name.split("/")
    if any(not part or part.startswith(".") or "\\" in part or "\0" in part for part in parts):
        return None
    media_type = _TYPES.get(Path(parts[-1]).suffix)
    if media_type is None or parts[-1] in _NEVER:
        return None
    content = read_inside(root, root.joinpath(*parts), _LARGEST)
    return None if content is None else Served(content, media_type)


def read_inside(root: Path, path: Path, largest: int) -> bytes | None:
    """What a regular file holds that lies beneath `root` once all links are followed; None for anything else."""
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(root):
            return None
        # A pipe must not keep us waiting, and what was a file a moment ago must not have become a link since.
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, RuntimeError, ValueError):
        return None
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > largest:
            return None
        return file.read(largest)
