"""Measured ceilings on disk: when they may be used again, and how they are written."""

from __future__ import annotations

import contextlib
import datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from profiling.findings import Ceilings
from profiling.shared_file import write_whole

_ADAPTER = TypeAdapter(Ceilings)
_RETRY_AFTER = datetime.timedelta(hours=1)


def load_ceilings(path: Path) -> Ceilings | None:
    """What was measured before; None where nothing can be read, or where it did not settle and is an hour old."""
    with contextlib.suppress(OSError, ValidationError):
        cached = _ADAPTER.validate_json(path.read_bytes())
        if not _worth_another_try(cached):
            return cached
    return None


def save_ceilings(path: Path, ceilings: Ceilings) -> None:
    """Keep them. Raises ToolchainError: the folder cannot be written."""
    write_whole(path, _ADAPTER.dump_json(ceilings, indent=2))


def now() -> str:
    """The date of a measurement, as its provenance has it."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def _worth_another_try(ceilings: Ceilings) -> bool:
    if not ceilings.provenance.get("unsettled"):
        return False
    try:
        measured = datetime.datetime.fromisoformat(ceilings.provenance["date"])
    except (KeyError, ValueError):
        return True
    return datetime.datetime.now(datetime.timezone.utc) - measured > _RETRY_AFTER
