"""What was asked of a model, and what came of it."""

from __future__ import annotations

from typing import Literal

from agent.event_base import Event
from agent.llm.types import ErrorKind, Reply, Usage


class RequestSent(Event):
    """The intent, on disk before the request leaves. `worst_usd` and `worst_tokens` bound what it may cost.

    `provider` and `model` are asked; `batch` is the key of the batch it goes out in, None for one sent by itself.
    """

    type: Literal["request_sent"] = "request_sent"
    iteration: int
    purpose: str
    prompt_sha256: str
    worst_usd: float | None
    worst_tokens: int
    provider: str = ""
    model: str = ""
    batch: str | None = None


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


class ReplyReceived(Event):
    """A completed reply; never asked for again."""

    type: Literal["reply_received"] = "reply_received"
    iteration: int
    purpose: str
    reply: Reply


class RequestFailed(Event):
    """A request that ended without a reply.

    Only a missing recording is keyed by its step and stands for good; anything else is asked again after a resume.

    Attributes:
        step: the step's name.
        usd, usage: what the provider charged all the same (a refusal, an answer that broke off), else None and nothing.
    """

    type: Literal["request_failed"] = "request_failed"
    step: str
    iteration: int
    purpose: str
    kind: ErrorKind
    message: str
    usd: float | None = None
    usage: Usage = Usage()
