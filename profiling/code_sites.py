"""The instructions of a listing, each with the loops around it, and where its jumps go."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backends.types import Function, Instruction, Listing

_PADDING = re.compile(r"nop[wlq]?|NOP|int3")
TARGET = re.compile(r"(?:^|[\s,])(?:0x)?([0-9a-f]+)$")
CONTROL = re.compile(r"j[a-z]+|loop\w*|callq?|xbegin|b|bl|bc?\.[a-z]+|cbn?z|tbn?z|BRA.*|CALL.*|BSSY.*")
_CALLS = re.compile(r"callq?|bl|CALL.*")


@dataclass(frozen=True, slots=True)
class Site:
    """An instruction, the function it is in, and the loops around it.

    `loop` numbers the innermost loop, None where there is none.
    """

    instruction: Instruction
    function: str
    in_loop: bool
    loop: int | None


def is_padding(instruction: Instruction) -> bool:
    """Whether it only fills space."""
    if _PADDING.fullmatch(instruction.opcode) is not None:
        return True
    return instruction.opcode == "xchg" and instruction.operands == "%ax,%ax"


def sites_of(listing: Listing) -> tuple[Site, ...]:
    """All instructions but padding, each with the loops around it, in the order of the image."""
    called = _called_in_loops(listing)
    sites: list[Site] = []
    loops = 0
    for function in listing.functions:
        innermost = _innermost(function)
        looped = function.name in called
        whole = looped and not innermost  # a helper without loops, called per iteration: the body of an innermost loop
        for i, instruction in enumerate(function.instructions):
            loop = loops if whole else innermost.get(i)
            if loop is not None and not whole:
                loop += loops
            if not is_padding(instruction):
                sites.append(Site(instruction, function.name, looped or instruction.loop_depth > 0, loop))
        loops += 1 + max(innermost.values(), default=0)
    return tuple(sites)


def _called_in_loops(listing: Listing) -> set[str]:
    """Names of the kernel's own functions that run inside a loop of another, directly or through others."""
    functions = {f.name: f for f in listing.functions}
    called: set[str] = set()
    pending = [i.target for f in listing.functions for i in f.instructions if i.loop_depth > 0 and is_call(i)]
    while pending:
        name = pending.pop()
        if name in functions and name not in called:
            called.add(name)
            pending.extend(i.target for i in functions[name].instructions if is_call(i))
    return called


def _innermost(function: Function) -> dict[int, int]:
    """Instruction index to loop number, for instructions of innermost loops.

    An innermost loop is a run of instructions deeper than what lies on both sides of it. Loops that lie back to back
    are told apart by their backward branches.
    """
    depths = [i.loop_depth for i in function.instructions]
    found: dict[int, int] = {}
    number = 0
    start = 0
    for end in range(1, len(depths) + 1):
        if end < len(depths) and depths[end] == depths[start]:
            continue
        left = depths[start - 1] if start else 0
        right = depths[end] if end < len(depths) else 0
        if depths[start] > left and depths[start] > right:
            for low, high in _back_to_back(function.instructions, start, end):
                found.update(dict.fromkeys(range(low, high), number))
                number += 1
        start = end
    return found


def _back_to_back(instructions: Sequence[Instruction], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Split a run at each backward branch that no later branch reaches behind."""
    index = {instructions[i].address: i for i in range(start, end)}
    reach = {i: index[to] for i in range(start, end) if (to := _jump_to(instructions[i])) in index}
    low = start
    for i in range(start, end):
        if reach.get(i, end) <= i and not any(to <= i for j, to in reach.items() if j > i):
            yield low, i + 1
            low = i + 1
    if low < end:
        yield low, end


def is_call(instruction: Instruction) -> bool:
    """Whether it calls a function (or, where SASS has no target for it, may only jump)."""
    return _CALLS.fullmatch(instruction.opcode) is not None


def _jump_to(instruction: Instruction) -> int | None:
    if CONTROL.fullmatch(instruction.opcode) is None or is_call(instruction):
        return None
    found = TARGET.search(instruction.operands)
    return int(found[1], 16) if found else None
