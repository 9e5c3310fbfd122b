"""Times that were taken on another device than the run's own, and what they may be used for."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from profiling.findings import Evaluation


class Elsewhere(BaseModel):
    """Another device on which kernels were evaluated.

    Times of two devices are never compared. What may be compared is how a kernel does against the best kernel where
    both ran: `scale` puts a time from there beside the best kernel's time here.

    Attributes:
        device: what people call it.
        base_ms: the best kernel's time there.
        scale: the best kernel's time on the run's own device, over `base_ms`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: str
    base_ms: float
    scale: float


def comparable_ms(outcome: Evaluation, elsewhere: Elsewhere | None) -> float | None:
    """A kernel's time as it ranks among others: its own, or scaled where it was taken elsewhere. None: not timed."""
    if outcome.timing is None:
        return None
    return outcome.timing.median_ms * (1.0 if elsewhere is None else elsewhere.scale)
