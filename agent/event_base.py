"""The base of all events."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Event(BaseModel):
    """Base of all events.

    Attributes:
        seq: position in the log, from 0.
        at: UTC time, ISO 8601.
        elapsed_s: seconds the run had been working, pauses between sessions left out.
        key: which occurrence; unique per type.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int = -1
    at: str = ""
    elapsed_s: float = 0.0
    key: str
