"""Loop nesting: of a control-flow graph, and of a function's instructions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

# Each level looks at its nodes again. No kernel nests this deep; one that pretends to must not hold up the run.
_DEEPEST = 32


@dataclass(frozen=True, slots=True)
class Step:
    """Where control can go after one instruction.

    Attributes:
        address: of the instruction.
        to: addresses it can jump to; those outside the function are ignored.
        falls_through: whether the next instruction can follow.
        computed: whether it jumps to a place that only a register knows.
    """

    address: int
    to: tuple[int, ...] = ()
    falls_through: bool = True
    computed: bool = False


def instruction_depths(steps: Sequence[Step]) -> list[int]:
    """Number of loops around each instruction of a function, whose `steps` are in order of address."""
    addresses = [s.address for s in steps]
    starts = _block_starts(steps, addresses)
    of_block = loop_depths(_flow(steps, addresses, starts))
    ends = [*starts[1:], len(steps)]
    return [of_block[block] for block, start in enumerate(starts) for _ in range(start, ends[block])]


def _inside(step: Step, addresses: Sequence[int]) -> Iterator[int]:
    """Indices of the instructions that `step` can jump to."""
    for address in step.to:
        i = bisect_left(addresses, address)
        if i < len(addresses) and addresses[i] == address:
            yield i


def _block_starts(steps: Sequence[Step], addresses: Sequence[int]) -> list[int]:
    """Indices of the instructions that begin a basic block."""
    starts = {0} if steps else set()
    for i, step in enumerate(steps):
        starts.update(_inside(step, addresses))
        if (step.to or step.computed or not step.falls_through) and i + 1 < len(steps):
            starts.add(i + 1)
    return sorted(starts)


def _flow(steps: Sequence[Step], addresses: Sequence[int], starts: list[int]) -> list[set[int]]:
    """For each block the blocks that may follow it.

    A jump through a register may go to any block that nothing else leads to: those are the cases of its switch. All
    such jumps go by way of one more node, the last: each with edges of its own would be as many as their product.
    """
    flow: list[set[int]] = [set() for _ in starts]
    computed: list[int] = []
    for block in range(len(starts)):
        last = steps[(starts[block + 1] if block + 1 < len(starts) else len(steps)) - 1]
        if last.falls_through and block + 1 < len(starts):
            flow[block].add(block + 1)
        flow[block].update(bisect_left(starts, i) for i in _inside(last, addresses))
        if last.computed:
            computed.append(block)
    if computed:
        reached = set().union(*flow)
        orphans = {block for block in range(1, len(starts)) if block not in reached}
        for block in computed:
            flow[block].add(len(flow))
        flow.append(orphans)
    return flow


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
