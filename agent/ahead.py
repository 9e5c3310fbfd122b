"""What is built before it is asked for, on cores that nothing which is timed uses."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from agent.executors.types import BuildTask, Executor
from backends.process import Ending
from backends.types import BuildSpec, Built, Rejected, ToolchainError

Outcome = Built | Rejected
Source = tuple[Path, BuildSpec]
_Key = tuple[bytes, str]
# On a machine with few cores the compilers that a run waits for are not to share them evenly.
_NICENESS = 10


class Ahead:
    """Builds that go on while something else is built or measured, behind all that is asked for meanwhile.

    They can only save time: what is ended, or was never begun, is built by whoever asks for it.

    Args:
        build: builds one candidate; what it raises comes up where the build is asked for.
        read: reads what was built; whoever reads it next finds it done.
        cores: what it may use; with none, nothing is built ahead.
    """

    def __init__(
        self, build: Callable[[Path, BuildSpec], Outcome], read: Callable[[Built], object], cores: Sequence[int]
    ) -> None:
        self._build, self._read = build, read
        self._builders: ThreadPoolExecutor | None = None
        self._readers: ThreadPoolExecutor | None = None
        if cores:
            self._builders = ThreadPoolExecutor(len(cores), "ahead", initializer=_behind, initargs=(cores,))
            self._readers = ThreadPoolExecutor(
                len(cores), "read", initializer=os.sched_setaffinity, initargs=(0, cores)
            )
        self._begun: dict[_Key, tuple[Future[Outcome], Ending]] = {}

    def start(self, sources: Sequence[Source]) -> None:
        """Begin with these, in this order, and end whatever else was begun."""
        if self._builders is None:
            return
        wanted = {_key(*source): source for source in sources}
        self._end_all_but(wanted)
        for key, source in wanted.items():
            if key not in self._begun:
                ending = Ending()
                self._begun[key] = self._builders.submit(self._run, ending, *source), ending

    def look(self, builds: Sequence[Built]) -> None:
        """Begin to read these builds, before anything that is built here."""
        if self._readers is not None:
            for built in builds:
                self._readers.submit(self._read, built)

    def take(self, source: Path, spec: BuildSpec) -> Future[Outcome] | None:
        """A build that goes on or is done; None for one that was not begun, and now will not be."""
        begun = self._begun.pop(_key(source, spec), None)
        return None if begun is None or begun[0].cancel() else begun[0]

    def close(self) -> None:
        """End what goes on, and give the threads back."""
        self._end_all_but(())
        for pool in (self._builders, self._readers):
            if pool is not None:
                pool.shutdown(cancel_futures=True)

    def _end_all_but(self, wanted: Collection[_Key]) -> None:
        for key in [key for key in self._begun if key not in wanted]:
            future, ending = self._begun.pop(key)
            if not future.cancel():
                ending.end()

    def _run(self, ending: Ending, source: Path, spec: BuildSpec) -> Outcome:
        with ending.governs():
            outcome = self._build(source, spec)
        if isinstance(outcome, Built):
            assert self._readers is not None
            self._readers.submit(self._read_wanted, ending, outcome)
        return outcome

    def _read_wanted(self, ending: Ending, built: Built) -> None:
        if not ending.ended:
            self._read(built)  # to its end: whoever else asks for it meanwhile waits for this one


def build_all(sources: Sequence[Source], ahead: Ahead, executor: Executor) -> list[Outcome]:
    """Build all at once, in order, less what was built ahead or is being built. Equal ones are built once.

    What went wrong behind other work (past a time limit, say) counts only when it is built in earnest.
    """
    wanted = {_key(*source): source for source in sources}
    begun = {key: future for key, source in wanted.items() if (future := ahead.take(*source)) is not None}
    earnest = {key: executor.build(BuildTask(*source)) for key, source in wanted.items() if key not in begun}
    builds: dict[_Key, Outcome] = {}
    for key, future in begun.items():
        with suppress(ToolchainError):
            built = future.result()
            if isinstance(built, Built):
                builds[key] = built
        if key not in builds:
            earnest[key] = executor.build(BuildTask(*wanted[key]))
    builds |= {key: future.result() for key, future in earnest.items()}
    return [builds[_key(*source)] for source in sources]


def _behind(cores: Sequence[int]) -> None:
    """The calling thread, and what it starts, on these cores and behind others: both are a thread's own in Linux."""
    os.sched_setaffinity(0, cores)
    os.nice(_NICENESS)


def _key(source: Path, spec: BuildSpec) -> _Key:
    return source.read_bytes(), repr(spec)
