"""The GPUs that a run may use beside its own: of the same model, or nothing could be said of one from the other."""

from __future__ import annotations

import os
from collections.abc import Sequence

from backends.types import ToolchainError
from profiling.gpu_device import GpuFacts, choose, entries, visible


def other_gpus(home: GpuFacts, selectors: Sequence[int | str]) -> tuple[GpuFacts, ...]:
    """The GPUs that a task names beside `home`, each once, without what CUDA alone knows of them.

    Args:
        home: the run's own.
        selectors: as `find_gpu` takes them; none stands for every GPU that CUDA_VISIBLE_DEVICES lets through, and then
            those of another model are left out.

    Raises:
        ToolchainError: there is no driver or no such GPU, or one that is named is of another model.
    """
    return pick_others(home, selectors, entries(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def pick_others(
    home: GpuFacts, selectors: Sequence[int | str], found: Sequence[GpuFacts | str], setting: str | None
) -> tuple[GpuFacts, ...]:
    """The same among the GPUs `found`, where CUDA_VISIBLE_DEVICES is `setting`."""
    if selectors:
        named = [choose(selector, found, setting) for selector in selectors]
        for gpu in named:
            if not _alike(home, gpu):
                raise ToolchainError(
                    f"device.gpus: GPU {gpu.index} is a {gpu.name} and GPU {home.index} a {home.name}; a run spreads "
                    "over GPUs of one model, without MIG: name those, or run once on each"
                )
    else:
        shown = [gpu for gpu in visible(found, setting) if isinstance(gpu, GpuFacts)]
        named = [gpu for gpu in shown if _alike(home, gpu)]
    return tuple({gpu.uuid: gpu for gpu in named if gpu.uuid != home.uuid}.values())


def _alike(home: GpuFacts, gpu: GpuFacts) -> bool:
    if gpu.uuid == home.uuid:
        return True
    return (home.name, home.arch) == (gpu.name, gpu.arch) and not home.mig and not gpu.mig
