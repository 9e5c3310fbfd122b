"""Whether two builds are the same machine code."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping

from backends.types import Function, Listing
from profiling.code_sites import CONTROL, TARGET, is_padding

_RELATIVE = re.compile(r"(-?0x[0-9a-f]+)\(%rip\)")


def same_code(a: Listing, b: Listing) -> bool:
    """Whether two kernels are the same instructions, wherever they lie.

    Compares mnemonics and operands of all functions in the order of the image, without padding. Jump targets are taken
    by position in the code and data addresses by order of first use, so code that merely moved is the same. Values of
    constants that live in data are not in a listing: kernels that differ in such a value alone are the same here.
    """
    return a.arch == b.arch and _canonical(a) == _canonical(b)


def _canonical(listing: Listing) -> list[list[tuple[str, str]]]:
    """Per function its instructions with every address replaced by what it stands for."""
    places = [_positions(number, f) for number, f in enumerate(listing.functions)]
    whole = {address: place for positions in places for address, place in positions.items()}
    named = {f.name: f"f{number}+0" for number, f in enumerate(listing.functions)}
    data: dict[int, str] = {}
    if listing.arch.startswith("sm_"):  # there addresses begin anew in each kernel
        whole = {}
    return [
        list(_canonical_function(f, ChainMap(own, whole), named, data))
        for f, own in zip(listing.functions, places, strict=True)
    ]


def _positions(number: int, function: Function) -> dict[int, str]:
    positions: dict[int, str] = {}
    ordinal = 0
    for instruction in function.instructions:
        positions[instruction.address] = f"f{number}+{ordinal}"
        ordinal += not is_padding(instruction)
    return positions


def _canonical_function(
    function: Function, position: Mapping[int, str], named: Mapping[str, str], data: dict[int, str]
) -> Iterator[tuple[str, str]]:
    following = [i.address for i in function.instructions[1:]]
    for i, instruction in enumerate(function.instructions):
        if is_padding(instruction):
            continue
        operands = instruction.operands
        if CONTROL.fullmatch(instruction.opcode) is not None and (found := TARGET.search(operands)):
            target = instruction.target or ""
            place = position.get(int(found[1], 16)) or named.get(target) or target or "elsewhere"
            operands = operands[: found.start()] + " " + place
        elif i < len(following) and (relative := _RELATIVE.search(operands)):
            address = following[i] + int(relative[1], 16)
            operands = _RELATIVE.sub(data.setdefault(address, f"data{len(data)}"), operands)
        yield instruction.opcode, operands
