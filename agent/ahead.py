"""Candidates built before they are asked for, on cores that nothing which is timed uses."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from backends.types import BuildSpec, Built, Rejected

Outcome = Built | Rejected


class Ahead:
    """Builds that go on while something else is measured.

    Args:
        build: builds one candidate; what it raises comes up where the build is asked for.
        cores: what it may use; with none, nothing is built ahead.
    """

    def __init__(self, build: Callable[[Path, BuildSpec], Outcome], cores: Sequence[int]) -> None:
        self._build = build
        self._pool = (
            ThreadPoolExecutor(len(cores), "ahead", initializer=os.sched_setaffinity, initargs=(0, cores))
            if cores
            else None
        )
        self._futures: dict[tuple[bytes, str], Future[Outcome]] = {}

    def start(self, sources: Sequence[tuple[Path, BuildSpec]]) -> None:
        """Begin with these, in this order."""
        if self._pool is None:
            return
        for source, spec in sources:
            key = _key(source, spec)
            if key not in self._futures:
                self._futures[key] = self._pool.submit(self._build, source, spec)

    def take(self, source: Path, spec: BuildSpec) -> Outcome | None:
        """What came of a build; waits for one that goes on. None for one that was not begun."""
        future = self._futures.pop(_key(source, spec), None)
        return None if future is None or future.cancel() else future.result()

    def drop(self) -> None:
        """Begin none of the rest."""
        for future in self._futures.values():
            future.cancel()
        self._futures.clear()

    def close(self) -> None:
        """Wait for what goes on, and give the threads back."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _key(source: Path, spec: BuildSpec) -> tuple[bytes, str]:
    return source.read_bytes(), repr(spec)
