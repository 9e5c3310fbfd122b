"""Tests marked `gpu` need an NVIDIA GPU; without one they are skipped, saying why."""

from __future__ import annotations

import pytest

from backends.types import ToolchainError
from profiling.gpu_device import GpuFacts, find_gpu


@pytest.hookimpl(tryfirst=True)  # before the marks are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu") is not None]
    if not marked:
        return
    for item in marked:  # `-n 6 --dist loadgroup` shares them out so that what a file sets up is set up once
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    try:
        find_gpu(0)
    except ToolchainError as error:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=f"needs an NVIDIA GPU: {error}"))


@pytest.fixture(scope="session")
def gpu() -> GpuFacts:
    """The first GPU that this process may use."""
    return find_gpu(0)
