"""What a user loses when tasks are handed out wrong: a result twice or never, or one that was measured thrown away."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from agent.errors import Interrupted
from agent.executors.spread import spread
from agent.executors.types import BuildTask, EvaluateTask, Found, Setting, Trouble
from backends.types import Built, Rejected
from profiling.findings import Evaluation
from profiling.types import HarnessFault

BASE = Built(Path("base.so"), "base", (), "", 0.0, cached=False)
BUILDS = [Built(Path(f"{n}.so"), str(n), (), "", 0.0, cached=False) for n in range(5)]


class Places:
    """An executor whose evaluations end when told, in threads of their own."""

    spare_cores: tuple[int, ...] = ()

    def __init__(self, places: int, *, together: bool) -> None:
        self._places, self.together = places, together
        self.begun: list[tuple[str, ...]] = []
        self.most_at_once = self._going = 0
        self.failing: str | None = None
        self._lock = threading.Lock()

    @property
    def places(self) -> int:
        return self._places

    def prepare(self, setting: Setting) -> None: ...

    def open_workers(self, kernels: int, at_home: int = 0) -> None: ...

    def build(self, task: BuildTask) -> Future[Built | Rejected]:
        raise AssertionError("nothing is built here")

    def evaluate(self, task: EvaluateTask) -> Future[Found]:
        future: Future[Found] = Future()
        keys = tuple(kernel.key for kernel in task.kernels)
        self.begun.append(keys)
        with self._lock:
            self._going += 1
            self.most_at_once = max(self.most_at_once, self._going)
        threading.Timer(0.02, self._end, (future, keys)).start()
        return future

    def _end(self, future: Future[Found], keys: tuple[str, ...]) -> None:
        with self._lock:
            self._going -= 1
        if self.failing in keys:
            future.set_exception(HarnessFault("the oracle is gone"))
        else:
            future.set_result(Found(tuple(Evaluation("pass", key, (), None) for key in keys), None))

    def troubles(self) -> list[Trouble]:
        return []

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("places", "together", "begun"),
    [
        (1, True, [("0", "1", "2", "3", "4")]),
        (2, True, [("0", "2", "4"), ("1", "3")]),
        (8, True, [("0",), ("1",), ("2",), ("3",), ("4",)]),
        (2, False, [("0",), ("1",), ("2",), ("3",), ("4",)]),
    ],
)
def test_each_kernel_is_evaluated_once_and_no_place_has_two(
    places: int, together: bool, begun: list[tuple[str, ...]]
) -> None:
    executor = Places(places, together=together)
    found: dict[int, str | None] = {}
    for indices, result in spread(executor, BUILDS, BASE, 1.0, lambda: None):
        found |= {i: e.reason for i, e in zip(indices, result.evaluations, strict=True)}
    assert found == {i: str(i) for i in range(5)}
    assert executor.begun == begun
    assert executor.most_at_once <= places


def test_what_was_begun_when_a_signal_comes_is_given_and_nothing_more_is_begun() -> None:
    executor = Places(2, together=False)
    asked = iter(range(10))

    def go_on() -> None:
        if next(asked) == 3:
            raise Interrupted("stopped by a signal")

    given: list[int] = []
    with pytest.raises(Interrupted):
        given.extend(i for indices, _ in spread(executor, BUILDS, BASE, 1.0, go_on) for i in indices)
    assert sorted(given) == [0, 1, 2]
    assert len(executor.begun) == 3


def test_a_fault_comes_up_after_what_was_measured_beside_it() -> None:
    executor = Places(2, together=True)
    executor.failing = "0"
    given: list[int] = []
    with pytest.raises(HarnessFault):
        given.extend(i for indices, _ in spread(executor, BUILDS, BASE, 1.0, lambda: None) for i in indices)
    assert sorted(given) == [1, 3]


def test_with_nothing_to_do_nothing_is_asked() -> None:
    executor = Places(2, together=True)
    assert list(spread(executor, [], BASE, 1.0, lambda: pytest.fail("asked"))) == []
