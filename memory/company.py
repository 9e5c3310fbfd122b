"""Which records of before revision 3 were shares of a larger plan: that was not written down, but can be told."""

from __future__ import annotations

from collections.abc import Hashable, Iterable


def shares(records: Iterable[tuple[Hashable, frozenset[str]]]) -> list[bool]:
    """For each record, whether it stands beside others that were no part of it.

    An iteration has one plan. Where it left records of several sets of methods, that which holds all the others is the
    plan's, and the others are shares of it; where none does, all are. One that stands alone counts as a plan.

    Args:
        records: the iteration (its run and scope) and the methods of each.
    """
    found = list(records)
    beside: dict[Hashable, set[frozenset[str]]] = {}
    for iteration, methods in found:
        beside.setdefault(iteration, set()).add(methods)
    return [any(not other <= methods for other in beside[iteration]) for iteration, methods in found]
