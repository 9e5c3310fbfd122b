"""At which of a task's shapes sanitizers run: small ones, since they slow a kernel down up to thousands of times."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from profiling.types import Case

# All tensors together. A product of 200 by 200 matrices, which racecheck takes seconds for, has as many.
SMALL_ELEMENTS = 1 << 17
NONE_SMALL = (
    f"no shape is small enough: name one in task.check_dims whose tensors have at most {SMALL_ELEMENTS} elements in all"
)


def small_cases(
    timed: Case, checks: Sequence[Case], dropped: Collection[Mapping[str, int]] = ()
) -> tuple[int | None, ...]:
    """The smallest extra case, and the largest case that is still small: an edge alone rarely reaches a main loop.

    No shape is made up: `shapes: any` promises that a kernel works there, not that the reference can make its inputs.

    Args:
        timed: the timed case; it is one of them only if it is small.
        checks: the extra cases. The smallest one is taken however large it is; a limit on time is on the tools.
        dropped: dims that the baseline itself fails.

    Returns:
        Numbers of extra cases, None for the timed one; nothing where nothing is small enough.
    """
    sizes: dict[int | None, int] = {
        number: _elements(case) for number, case in enumerate(checks) if case.dims not in dropped
    }
    smallest = [min(sizes, key=lambda number: sizes[number])] if sizes else []
    sizes[None] = _elements(timed)
    small = [number for number, size in sizes.items() if size <= SMALL_ELEMENTS]
    largest = [max(small, key=lambda number: sizes[number])] if small else []
    return tuple(dict.fromkeys((*smallest, *largest)))


def _elements(case: Case) -> int:
    return sum(t.elements for t in case.tensors)
