"""What a run may take, read from its `config.yaml` by who looks on, as far as it can be read; nothing is checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LARGEST = 1 << 20
_MOST = 1e9  # no limit of a run is beyond that


@dataclass(frozen=True, slots=True)
class Limits:
    """None: no limit, or not known."""

    iterations: int | None = None
    minutes: float | None = None
    usd: float | None = None


def read_limits(folder: Path) -> Limits:
    """The limits of the run in `folder`."""
    config = read_config(folder)
    iterations, minutes, usd = (
        _number(config, *key) for key in (("search", "iterations"), ("budget", "minutes"), ("budget", "usd"))
    )
    return Limits(None if iterations is None else int(iterations), minutes, usd)


def read_config(folder: Path) -> Mapping[str, Any]:
    """A run's config as plain data; empty where it is missing or cannot be read.

    It is read as JSON, which is what a run writes: a YAML parser can be kept busy for minutes by a damaged file.
    """
    path = folder / "config.yaml"
    try:
        if path.stat().st_size > _LARGEST:
            return {}
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _number(config: Mapping[str, Any], section: str, key: str) -> float | None:
    part = config.get(section)
    value = part.get(key) if isinstance(part, dict) else None
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MOST
    return value if usable else None
