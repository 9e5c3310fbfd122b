"""Shapes that nobody wrote down: drawn once for each run, checked for correctness, told to no prompt."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agent.faults import as_exit_codes
from agent.task import Task, bound_case, described
from backends.triton import TritonBackend
from backends.types import Rejected, SourceError
from profiling.types import TaskError

Shape = Mapping[str, int]

_TRIES = 16
_TINY, _SMALLEST_PRIME = 7, 11
_ALIGNED = 16
_MOST_TRITON = 1  # every candidate is compiled, and its autotuners tuned, for each


def draw_shapes(task: Task, rng: random.Random, cache: Path) -> tuple[Shape, ...]:
    """As many shapes as the task asks for that its baseline can be bound to and built for; fewer where none is found.

    In turn: primes up to the timed dims, sizes up to 7, and one dim a little larger than it is timed.

    Args:
        task: on its machine.
        rng: secret.
        cache: of builds.
    """
    section = task.config.task
    if section.shapes == "fixed" or section.reference is None or not section.dims:
        return ()
    triton = isinstance(task.backend, TritonBackend)
    count = min(section.hidden_shapes, _MOST_TRITON) if triton else section.hidden_shapes
    taken = [dict(case.dims) for case in (task.problem.timed, *task.problem.checks)]
    drawn: list[Shape] = []
    for kind in (_KINDS[i % len(_KINDS)] for i in range(count)):
        for _ in range(1 if triton else _TRIES):  # learning what a Triton `setup` makes takes seconds
            shape = kind(section.dims, rng)
            if shape not in taken and _fits(task, shape, cache):
                taken.append(shape)
                drawn.append(shape)
                break
    return tuple(drawn)


def with_hidden(task: Task, shapes: Sequence[Shape]) -> Task:
    """The task with these shapes among those that a kernel is checked at.

    Raises:
        ConfigError: they do not fit the task.
    """
    if not shapes:
        return task
    with as_exit_codes():
        return _with(task, shapes)


def _with(task: Task, shapes: Sequence[Shape]) -> Task:
    made = described(task, shapes)
    pairs = zip(shapes, made, strict=True)
    cases = [replace(bound_case(task, shape, arguments), secret=True) for shape, arguments in pairs]
    told = [arguments for arguments in made if arguments]  # of Triton kernels alone
    spec = replace(task.spec, elsewhere=(*task.spec.elsewhere, *told), untold=len(told))
    return replace(task, spec=spec, problem=replace(task.problem, checks=(*task.problem.checks, *cases)))


def _fits(task: Task, shape: Shape, cache: Path) -> bool:
    try:
        there = _with(task, [shape])
        if isinstance(task.backend, TritonBackend):
            return not isinstance(task.backend.build(task.baseline, there.spec, cache), Rejected)
    except (TaskError, SourceError):
        return False
    return True


def _odd(dims: Shape, rng: random.Random) -> dict[str, int]:
    return {name: _prime(size, rng) for name, size in dims.items()}


def _tiny(dims: Shape, rng: random.Random) -> dict[str, int]:
    return {name: rng.randint(1, min(size, _TINY)) for name, size in dims.items()}


def _larger(dims: Shape, rng: random.Random) -> dict[str, int]:
    """One dim up to a quarter larger; it keeps its power of two, so that paths for aligned sizes are met again."""
    name = rng.choice(list(dims))
    step = math.gcd(dims[name], _ALIGNED)
    return {**dims, name: dims[name] + step * rng.randint(1, max(1, dims[name] // (4 * step)))}


_KINDS: tuple[Callable[[Shape, random.Random], dict[str, int]], ...] = (_odd, _tiny, _larger)


def _prime(most: int, rng: random.Random) -> int:
    """A prime of at least 11, every order of magnitude alike; any number where there is no room for one."""
    if most <= _SMALLEST_PRIME:
        return rng.randint(1, most)
    number = round(math.exp(rng.uniform(math.log(_SMALLEST_PRIME), math.log(most))))
    while any(number % divisor == 0 for divisor in range(2, math.isqrt(number) + 1)):
        number -= 1  # 11 is one
    return number
