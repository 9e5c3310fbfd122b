"""Measured ceilings on disk: when they may be used again, and how they are written."""

from __future__ import annotations

import contextlib
import datetime
import os
import tempfile
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from backends.host_compiler import disk_error
from profiling.types import Ceilings

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
    """Write them whole, then rename: parallel runs share the folder.

    Raises:
        ToolchainError: the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=".ceilings-", suffix=".json")
        with os.fdopen(descriptor, "wb") as file:
            file.write(_ADAPTER.dump_json(ceilings, indent=2))
        os.replace(partial, path)
    except OSError as error:
        raise disk_error(error, path.parent) from error


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
