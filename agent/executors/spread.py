"""Tasks handed to an executor, and results taken as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait

from agent.executors.types import EvaluateTask, Executor, Found
from backends.types import Built

Indices = tuple[int, ...]


def spread(
    executor: Executor, kernels: Sequence[Built], base: Built, base_ms: float, go_on: Callable[[], None]
) -> Iterator[tuple[Indices, Found]]:
    """Evaluate kernels wherever there is a place, and give results as they come.

    Args:
        executor: where.
        kernels: their builds.
        base: the best kernel, which ranks them.
        base_ms: its time on the run's own device.
        go_on: asked before anything is begun; what it raises is raised once all that was begun is given.

    Yields:
        Places in `kernels`, and what was found of those.
    """
    # One share for each place where kernels are best evaluated together, else one for each kernel.
    number = executor.places if executor.together else len(kernels)
    waiting = deque(share for share in shares(len(kernels), number) if share)
    running: dict[Future[Found], Indices] = {}
    failure: BaseException | None = None
    while running or (waiting and failure is None):
        try:
            while waiting and failure is None and len(running) < executor.places:
                go_on()
                share = waiting.popleft()
                task = EvaluateTask(tuple(kernels[i] for i in share), base, base_ms)
                running[executor.evaluate(task)] = share
        except Exception as error:
            failure = error
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            share = running.pop(future)
            try:
                found = future.result()
            except Exception as error:
                failure = failure or error
            else:
                yield share, found
    if failure is not None:
        raise failure


def shares(count: int, number: int) -> list[Indices]:
    """So many kernels in so many shares, the largest first; where there are more shares, the last are empty."""
    return [tuple(range(first, count, number)) for first in range(number)]
