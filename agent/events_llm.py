"""What happened between a request and its reply."""

from __future__ import annotations

from typing import Literal

from agent.event_base import Event
from agent.llm.types import Usage


class RequestRetried(Event):
    """An attempt that failed; the next is made after a wait. On disk before the wait begins.

    Attributes:
        step: the step's name.
        attempt: which one failed, from 1.
        message: why.
        wait_s: seconds until the next.
        usage, usd: what it may have cost all the same: what the provider said, else an estimate; None: no price.
    """

    type: Literal["request_retried"] = "request_retried"
    step: str
    iteration: int
    purpose: str
    attempt: int
    message: str
    wait_s: float
    usage: Usage = Usage()
    usd: float | None = 0.0
