"""How the GPU fares while kernels are timed: clock, temperature, power, and what holds it back."""

from __future__ import annotations

import threading

from backends.types import ToolchainError
from profiling.findings import Conditions
from profiling.gpu_device import GpuSample, sample

_EVERY_S = 0.02  # asking takes a millisecond or two, which must not lie between two calls


class GpuWatch:
    """Asks the driver again and again, in a thread of its own, so that nobody who measures has to wait for it.

    Args:
        uuid: of the GPU.
    """

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self.latest: Conditions | None = None
        threading.Thread(target=self._watch, name="gpu-watch", daemon=True).start()

    def _watch(self) -> None:
        pause = threading.Event()
        while True:
            try:
                self.latest = conditions(sample(self._uuid, processes=False))
            except ToolchainError:  # a slice of a GPU, or a driver that does not say
                self.latest = None
                return
            pause.wait(_EVERY_S)


def conditions(found: GpuSample) -> Conditions:
    """What is kept of a sample."""
    clock = found.sm_clock_hz
    return Conditions(None if clock is None else clock / 1e6, found.temperature_c, found.power_w, found.disturbed)
