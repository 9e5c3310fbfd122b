"""A device where kernels are evaluated beside the run's own: it has tested the task, and timed the best kernel."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from profiling.findings import Evaluation
from profiling.harness.harness import Harness

_FRESH_S = 600.0


class Unfit(Exception):
    """Nothing can be evaluated there; the message says why."""


class Station:
    """One device, its harness open.

    Args:
        harness: of the run's task, on that device. It is closed with this.
        baseline: with which the task is tested.
        floor_ms: a time under this is not believed.

    Raises:
        TaskError: the task is unfit there.
        HarnessFault: the harness failed.
    """

    def __init__(self, harness: Harness, baseline: Path, floor_ms: float | None) -> None:
        self._harness = harness
        harness.check_task(baseline)
        harness.set_floor(floor_ms)
        self._times: dict[str, tuple[float, float]] = {}

    def time_of(self, key: str, base: Path) -> float:
        """The best kernel's time here, ms, at most ten minutes old.

        Raises:
            Unfit: it cannot be timed here, or is not right here.
        """
        taken, median_ms = self._times.get(key, (0.0, 0.0))
        if key in self._times and time.monotonic() - taken < _FRESH_S:
            return median_ms
        self._times.pop(key, None)
        found = self._harness.evaluate(base)
        if found.verdict != "pass" or found.timing is None:
            raise Unfit(f"the best kernel is {found.verdict} there ({found.reason})")
        self._times[key] = (time.monotonic(), found.timing.median_ms)
        return found.timing.median_ms

    def open_workers(self, workers: int) -> None:
        """Have workers for what is evaluated next open the device, and wait until they have."""
        self._harness.prepare(workers)

    def evaluate(self, kernels: Sequence[Path]) -> tuple[Evaluation, ...]:
        """Verify and time kernels."""
        return tuple(self._harness.evaluate_each(kernels))

    def close(self) -> None:
        """End the harness."""
        self._harness.close()
