"""What happened to batches of requests. `key` is the batch's: `iter1-batch-b0`, by its first step."""

from __future__ import annotations

from typing import Literal

from agent.event_base import Event


class BatchSent(Event):
    """The intent, on disk before the batch leaves. Each of its requests has a `RequestSent` that names it.

    Attributes:
        tag: a word that only this batch has; its requests carry it.
        steps: names of the steps it asks.
    """

    type: Literal["batch_sent"] = "batch_sent"
    iteration: int
    provider: str
    model: str
    tag: str
    steps: tuple[str, ...]


class BatchAccepted(Event):
    """The provider's id of a batch. Not `certain` where a lost id was found again by time and size alone."""

    type: Literal["batch_accepted"] = "batch_accepted"
    iteration: int
    batch_id: str
    certain: bool = True


class BatchEnded(Event):
    """A batch is done with: `answered` of its requests have a reply, the others are asked for directly.

    `outcome`: `finished`; `cancelled` at the deadline; `abandoned`, for it did not end in time after that; `refused`,
    it was not taken; `lost`, the provider does not know it (any more).
    """

    type: Literal["batch_ended"] = "batch_ended"
    iteration: int
    outcome: Literal["finished", "cancelled", "abandoned", "refused", "lost"]
    answered: int
    reason: str = ""


def describe_batch(event: BatchSent | BatchAccepted | BatchEnded) -> str:
    """One event as one line."""
    where = f"iter {event.iteration}"
    if isinstance(event, BatchSent):
        many = f"{len(event.steps)} branch{'es' if len(event.steps) > 1 else ''}"
        return f"{where} {many} as a batch to {event.provider} {event.model}"
    if isinstance(event, BatchAccepted):
        return f"{where} waiting for batch {event.batch_id}"
    return f"{where} batch {event.outcome}, {event.answered} answered{f': {event.reason}' if event.reason else ''}"
