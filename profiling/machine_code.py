"""Presence: which methods show in the machine code of a kernel, against the kernel they were applied to.

Instructions are counted inside the kernel's own functions and matched by mnemonic, operands and called symbol, never by
text: no function name and no constant passes for an instruction. What must change for a method is data
(`profiling/signatures/`). Padding counts for nothing. A function of the kernel called in a loop is in that loop.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from backends.types import Function, Instruction, Listing
from profiling.signature_table import (
    Alternative,
    Kind,
    Pattern,
    SignatureError,
    SignatureFile,
    Signatures,
    Where,
    load_signatures,
)
from profiling.types import MethodPresence

__all__ = ["SignatureError", "Signatures", "check_methods", "instruction_mix", "load_signatures", "same_code"]

_LINES = 4
_PADDING = re.compile(r"nop[wlq]?|NOP|int3")
_MIX = ("scalar_float", "vector_128", "vector_256", "vector_512", "fma", "divisions", "gathers", "prefetches")
_MIX_AFTER = ("streaming_stores", "spills", "branches")


@dataclass(frozen=True, slots=True)
class _Site:
    """An instruction and the loops around it. `loop` numbers the innermost loop it is in, None where it is in none."""

    instruction: Instruction
    in_loop: bool
    loop: int | None


def check_methods(methods: Sequence[str], before: Listing | None, after: Listing | None) -> tuple[MethodPresence, ...]:
    """Machine-code evidence for each method.

    Args:
        methods: catalogue ids, or ids that a plan declared.
        before: the kernel the methods were applied to; None where it could not be disassembled.
        after: the kernel that claims them.

    Returns:
        One verdict per method, in order. `none` is a method that leaves no opcode of its own, or one that no signature
        file knows: there the caller decides by `same_code`. Without both listings, or without a signature for this
        architecture, the verdict is `unavailable`: nothing passes for lack of evidence.
    """
    if before is None or after is None:
        which = "either kernel" if before is after else "the kernel before" if before is None else "the kernel"
        return tuple(MethodPresence(m, "unavailable", f"no disassembly of {which}") for m in methods)
    if before.arch != after.arch:
        reason = f"the kernels are for different architectures, {before.arch} and {after.arch}"
        return tuple(MethodPresence(m, "unavailable", reason) for m in methods)
    signatures = load_signatures()
    sites = (_sites(before), _sites(after))
    return tuple(_presence(m, after.arch, signatures, *sites) for m in methods)


def same_code(a: Listing, b: Listing) -> bool:
    """Whether two kernels are the same instructions, wherever they lie.

    Compares mnemonics and operands of all functions in the order of the image, without padding. Jump targets are taken
    by position in the code and data addresses by order of first use, so code that merely moved is the same. Values of
    constants that live in data are not in a listing: kernels that differ in such a value alone are the same here.
    """
    return a.arch == b.arch and _canonical(a) == _canonical(b)


def instruction_mix(listing: Listing) -> Mapping[str, int | float | str]:
    """Counts of instructions, for prompts and for metrics.

    Returns:
        `instructions`, `instructions_in_loops`, `instructions_in_innermost_loops`; then, counted in loops only:
        floating-point arithmetic by width (`scalar_float`, `vector_128`, `vector_256`, `vector_512`), `fma`,
        `divisions` (and square roots), `gathers`, `prefetches`, `streaming_stores`, `spills` (vector moves to and from
        the stack), `branches` (conditional), `calls_in_loops`; and `call_targets`, the names of those called, where
        there are any. A kind that the signature file does not define for this architecture is left out, not zero.
    """
    sites = _sites(listing)
    looped = [s.instruction for s in sites if s.in_loop]
    classes = load_signatures().on(listing.arch).classes.get(listing.arch, {})
    mix: dict[str, int | float | str] = {
        "instructions": len(sites),
        "instructions_in_loops": len(looped),
        "instructions_in_innermost_loops": sum(s.loop is not None for s in sites),
    }
    for name in (*_MIX, *_MIX_AFTER):
        if name in classes:
            mix[name] = sum(map(classes[name].holds, looped))
    if "calls" in classes:
        own = {f.name for f in listing.functions}
        calls = [i for i in looped if classes["calls"].holds(i)]
        mix["calls_in_loops"] = len(calls)
        names = Counter(_called(i, own) for i in calls)
        if names:
            mix["call_targets"] = ", ".join(name if n == 1 else f"{name} x{n}" for name, n in names.most_common())
    return mix


def _called(instruction: Instruction, own: set[str]) -> str:
    if instruction.target is None:
        return "(through a pointer)"
    return f"{instruction.target} (own)" if instruction.target in own else instruction.target


def _presence(
    method: str, arch: str, signatures: Signatures, before: Sequence[_Site], after: Sequence[_Site]
) -> MethodPresence:
    file: SignatureFile = signatures.on(arch)
    if method in file.none:
        return MethodPresence(method, "none", "leaves no opcode of its own; presence is a difference of code")
    if not signatures.known(method):
        return MethodPresence(method, "none", "declared by the plan, no signature; presence is a difference of code")
    alternatives = file.alternatives(method, arch)
    if not alternatives:
        return MethodPresence(method, "unavailable", f"no signature of it for {arch}")
    met = next((a for a in alternatives if all(_changed(p, before, after) for p in a)), None)
    shown = (met,) if met is not None else alternatives
    patterns = tuple(dict.fromkeys(p for alternative in shown for p in alternative))
    return MethodPresence(
        method=method,
        verdict="absent" if met is None else "verified",
        reason=("; " if met else "; or ").join(_told(a, before, after) for a in shown),
        before={p.label: _count(p.kind, p.where, before) for p in patterns},
        after={p.label: _count(p.kind, p.where, after) for p in patterns},
        lines=() if met is None else tuple(_evidence(met, before, after)),
    )


def _changed(pattern: Pattern, before: Sequence[_Site], after: Sequence[_Site]) -> bool:
    old, new = _measured(pattern, before), _measured(pattern, after)
    if pattern.change == "appears":
        return old == 0 < new
    if pattern.change == "vanishes":
        return new == 0 < old
    low, high = (old, new) if pattern.change == "grows" else (new, old)
    return high > low and high >= low * pattern.by


def _measured(pattern: Pattern, sites: Sequence[_Site]) -> float:
    if pattern.measure == "count":
        return _count(pattern.kind, pattern.where, sites)
    if pattern.measure == "share":
        base = _base(pattern, sites)
        return _count(pattern.kind, pattern.where, sites) / base if base else 0.0
    loops: dict[int, list[Instruction]] = {}
    for site in sites:
        if site.loop is not None:
            loops.setdefault(site.loop, []).append(site.instruction)
    return max((_in_one_loop(pattern, loop) for loop in loops.values()), default=0.0)


def _in_one_loop(pattern: Pattern, loop: Sequence[Instruction]) -> float:
    registers = [r for r in map(pattern.kind.register, loop) if r is not None]
    if pattern.measure == "distinct":
        return len(set(registers))
    if pattern.measure == "peak":
        return len(registers)
    base = len(loop) if pattern.of is None else sum(map(pattern.of.holds, loop))
    return len(registers) / base if base else 0.0


def _region(where: Where, sites: Sequence[_Site]) -> Iterator[Instruction]:
    for site in sites:
        if where == "anywhere" or (site.in_loop if where == "loop" else site.loop is not None):
            yield site.instruction


def _count(kind: Kind, where: Where, sites: Sequence[_Site]) -> int:
    return sum(map(kind.holds, _region(where, sites)))


def _base(pattern: Pattern, sites: Sequence[_Site]) -> int:
    if pattern.of is None:
        return sum(1 for _ in _region(pattern.where, sites))
    return _count(pattern.of, pattern.where, sites)


def _told(alternative: Alternative, before: Sequence[_Site], after: Sequence[_Site]) -> str:
    """Such as `fma in loops: 1 of 6 scalar_float before, 24 of 30 after (share must grow)`."""
    parts = []
    for pattern in alternative:
        told = [f"{_measured(pattern, sites):g}" for sites in (before, after)]
        if pattern.measure == "share":
            bases = [_base(pattern, sites) for sites in (before, after)]
            counts = [_count(pattern.kind, pattern.where, sites) for sites in (before, after)]
            told = [f"{count} of {base}" for count, base in zip(counts, bases, strict=True)]
            told[0] += f" {pattern.of.name if pattern.of else 'instructions'}"
        verb = {"appears": "appear", "grows": "grow", "shrinks": "shrink", "vanishes": "vanish"}[pattern.change]
        by = f" {pattern.by:g} times" if pattern.by > 1 else ""
        parts.append(f"{pattern.label}: {told[0]} before, {told[1]} after ({pattern.measure} must {verb}{by})")
    return " and ".join(parts)


def _evidence(alternative: Alternative, before: Sequence[_Site], after: Sequence[_Site]) -> Iterator[str]:
    """Lines that show the first pattern: in the kernel where it appeared, in the one before where it went."""
    pattern = alternative[0]
    gone = pattern.change in ("shrinks", "vanishes")
    found = (i for i in _region(pattern.where, before if gone else after) if pattern.kind.holds(i))
    for _, instruction in zip(range(_LINES), found, strict=False):
        to = f" <{instruction.target}>" if instruction.target else ""
        line = f"{instruction.address:x}: {instruction.opcode} {instruction.operands}".rstrip() + to
        yield f"before: {line}" if gone else line


def _is_padding(instruction: Instruction) -> bool:
    if _PADDING.fullmatch(instruction.opcode) is not None:
        return True
    return instruction.opcode == "xchg" and instruction.operands == "%ax,%ax"


def _sites(listing: Listing) -> tuple[_Site, ...]:
    """All instructions but padding, each with the loops around it, in the order of the image."""
    called = _called_in_loops(listing)
    sites: list[_Site] = []
    loops = 0
    for function in listing.functions:
        innermost = _innermost(function)
        looped = function.name in called
        whole = looped and not innermost  # a helper without loops, called per iteration: the body of an innermost loop
        for i, instruction in enumerate(function.instructions):
            loop = loops if whole else innermost.get(i)
            if loop is not None and not whole:
                loop += loops
            if not _is_padding(instruction):
                sites.append(_Site(instruction, looped or instruction.loop_depth > 0, loop))
        loops += 1 + max(innermost.values(), default=0)
    return tuple(sites)


def _called_in_loops(listing: Listing) -> set[str]:
    """Names of the kernel's own functions that run inside a loop of another, directly or through others."""
    functions = {f.name: f for f in listing.functions}
    called: set[str] = set()
    pending = [i.target for f in listing.functions for i in f.instructions if i.loop_depth > 0 and _is_call(i)]
    while pending:
        name = pending.pop()
        if name in functions and name not in called:
            called.add(name)
            pending.extend(i.target for i in functions[name].instructions if _is_call(i))
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


_TARGET = re.compile(r"(?:^|[\s,])(?:0x)?([0-9a-f]+)$")
_CONTROL = re.compile(r"j[a-z]+|loop\w*|callq?|xbegin|b|bl|bc?\.[a-z]+|cbn?z|tbn?z|BRA.*|CALL.*|BSSY.*")
_CALLS = re.compile(r"callq?|bl|CALL.*")
_RELATIVE = re.compile(r"(-?0x[0-9a-f]+)\(%rip\)")


def _is_call(instruction: Instruction) -> bool:
    return _CALLS.fullmatch(instruction.opcode) is not None


def _jump_to(instruction: Instruction) -> int | None:
    if _CONTROL.fullmatch(instruction.opcode) is None or _is_call(instruction):
        return None
    found = _TARGET.search(instruction.operands)
    return int(found[1], 16) if found else None


def _canonical(listing: Listing) -> list[list[tuple[str, str]]]:
    """Per function its instructions with every address replaced by what it stands for."""
    position: dict[int, str] = {}
    for number, function in enumerate(listing.functions):
        ordinal = 0
        for instruction in function.instructions:
            position[instruction.address] = f"f{number}+{ordinal}"
            ordinal += not _is_padding(instruction)
    data: dict[int, str] = {}
    return [list(_canonical_function(f, position, data)) for f in listing.functions]


def _canonical_function(
    function: Function, position: Mapping[int, str], data: dict[int, str]
) -> Iterator[tuple[str, str]]:
    following = [i.address for i in function.instructions[1:]]
    for i, instruction in enumerate(function.instructions):
        if _is_padding(instruction):
            continue
        operands = instruction.operands
        if _CONTROL.fullmatch(instruction.opcode) is not None and (found := _TARGET.search(operands)):
            place = position.get(int(found[1], 16)) or instruction.target or "elsewhere"
            operands = operands[: found.start()] + " " + place
        elif i < len(following) and (relative := _RELATIVE.search(operands)):
            address = following[i] + int(relative[1], 16)
            operands = _RELATIVE.sub(data.setdefault(address, f"data{len(data)}"), operands)
        yield instruction.opcode, operands
