"""No test reads a real key, and all share one cache of builds and ceilings that is gone afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL")


@pytest.fixture(scope="session", autouse=True)
def clean_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = dict(os.environ)
    for name in _KEYS:
        os.environ.pop(name, None)
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    os.environ.clear()
    os.environ.update(before)


# Folders and files whose tests time kernels, or fail when the machine is busy.
_TIMED = ("tests/loop/", "tests/redteam/", "tests/gpu/", "profiling/test_harness", "profiling/test_ceilings")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(part in item.path.as_posix() for part in _TIMED):
            item.add_marker("timed")
