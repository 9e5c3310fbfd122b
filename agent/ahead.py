"""What is done before it is asked for: candidates built on cores that nothing which is timed uses, workers started."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Thread

from backends.types import BuildSpec, Built, Rejected
from profiling.types import HarnessFault, TaskError

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

    def look(self, read: Callable[[Built], object], builds: Sequence[Built]) -> None:
        """Begin to read these builds, before anything that is built; whoever reads them next finds it done."""
        if self._pool is not None:
            for built in builds:
                self._pool.submit(read, built)

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


class WorkersAhead:
    """Workers that open a GPU while compilers run. Nothing depends on them: whoever finds none starts its own.

    Args:
        prepare: has so many of them ready.
    """

    def __init__(self, prepare: Callable[[int], None]) -> None:
        self._prepare = prepare
        self._thread: Thread | None = None

    def start(self, workers: int) -> None:
        """Begin with so many, and return at once."""
        self.close()
        self._thread = Thread(target=self._run, args=(workers,), name="workers-ahead")
        self._thread.start()

    def _run(self, workers: int) -> None:
        # What is broken shows again where a measurement needs it, and a stop is seen by the run itself.
        with suppress(HarnessFault, TaskError, InterruptedError):
            self._prepare(workers)

    def close(self) -> None:
        """Wait for what goes on."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None


def _key(source: Path, spec: BuildSpec) -> tuple[bytes, str]:
    return source.read_bytes(), repr(spec)
