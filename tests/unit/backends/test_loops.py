"""What a user loses when nesting is wrong: an instruction in cold code passes for one in the hot loop."""

from __future__ import annotations

import pytest

from backends.loops import loop_depths

GRAPHS = {
    "straight line": ([{1}, {2}, set()], [0, 0, 0]),
    "one block that repeats itself": ([{1}, {1, 2}, set()], [0, 1, 0]),
    "three nested loops": (
        # 0 -> 1 [ 2 [ 3 ] 4 ] 5
        [{1}, {2}, {3}, {3, 4}, {2, 5}, {1, 6}, set()],
        [0, 1, 2, 3, 2, 1, 0],
    ),
    "two loops one after the other": ([{1}, {1, 2}, {3}, {3, 4}, set()], [0, 1, 0, 1, 0]),
    "entered at its test, at the bottom": ([{2}, {2}, {1, 3}, set()], [0, 1, 1, 0]),
    "a cold block at the end that jumps back is no loop": ([{1, 3}, {2}, set(), {1}], [0, 0, 0, 0]),
    "continue does not deepen the loop": ([{1}, {1, 2}, {1, 3}, set()], [0, 1, 1, 0]),
    "entered at two places": ([{1, 2}, {2}, {1, 3}, set()], [0, 1, 1, 0]),
    "the entry block repeats": ([{0, 1}, set()], [1, 0]),
    "unreachable": ([set(), {1}], [0, 1]),
    "nothing": ([], []),
}


@pytest.mark.parametrize("graph", GRAPHS)
def test_depths(graph: str) -> None:
    successors, depths = GRAPHS[graph]
    assert loop_depths(successors) == depths


def test_a_long_chain_needs_no_recursion() -> None:
    count = 20_000
    assert loop_depths([{n + 1} for n in range(count)] + [{0}]) == [1] * (count + 1)


def test_a_nest_without_end_is_looked_at_no_deeper_than_any_kernel_nests() -> None:
    """Each level costs a look at all that is inside it: a kernel could hold up the night with its jumps."""
    count = 10_000
    nest: list[set[int]] = [{n + 1} for n in range(count)]
    back = [{2 * count - 1 - n, n + 1} for n in range(count, 2 * count)]
    depths = loop_depths([*nest, *back, set()])
    assert (depths[0], depths[5], max(depths), depths[-1]) == (1, 6, 32, 0)
