"""Loop nesting of a control-flow graph."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

# Each level looks at its nodes again. No kernel nests this deep; one that pretends to must not hold up the run.
_DEEPEST = 32


def loop_depths(successors: Sequence[Collection[int]]) -> list[int]:
    """Number of loops around each node of a graph.

    A loop is a strongly connected component; within it the header, the node that is entered from outside, is taken away
    and what still hangs together is a loop nested in it (Bourdoncle 1993, "Efficient chaotic iteration strategies with
    widenings", §4.1). So code that merely lies between a branch and its target, such as a cold block at the end of a
    function that jumps back, is not in a loop. Loops that share one header count once. Deeper
    than 32, loops are no longer told apart.

    Args:
        successors: for each node, the nodes that it can pass control to; node 0 is the entry.
    """
    depths = [0] * len(successors)
    predecessors: list[list[int]] = [[] for _ in successors]
    for node, followers in enumerate(successors):
        for follower in followers:
            predecessors[follower].append(node)
    pending = [(set(range(len(successors))), 1)]
    while pending:
        nodes, depth = pending.pop()
        for component in _components(nodes, successors):
            if len(component) == 1 and not component & set(successors[min(component)]):
                continue
            for node in component:
                depths[node] = depth
            if depth == _DEEPEST:
                continue
            entered = (n for n in component if n == 0 or any(p not in component for p in predecessors[n]))
            component.discard(min(entered, default=min(component)))
            pending.append((component, depth + 1))
    return depths


def _components(nodes: set[int], successors: Sequence[Collection[int]]) -> Iterator[set[int]]:
    """Strongly connected components of the subgraph on `nodes` (Tarjan 1972, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in sorted(nodes):
        if root in index:
            continue
        work = [(root, iter(successors[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, followers = work[-1]
            for follower in followers:
                if follower not in nodes:
                    continue
                if follower not in index:
                    index[follower] = low[follower] = len(index)
                    stack.append(follower)
                    on_stack.add(follower)
                    work.append((follower, iter(successors[follower])))
                    break
                if follower in on_stack:
                    low[node] = min(low[node], index[follower])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component: set[int] = set()
                    while node not in component:
                        component.add(stack.pop())
                    on_stack -= component
                    yield component
