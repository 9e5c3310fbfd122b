"""Presence: which methods show in the machine code of a kernel, against the kernel they were applied to.

Instructions are counted inside the kernel's own functions and matched by mnemonic, operands and called symbol, never by
text: no function name and no constant passes for an instruction. What must change for a method is data
(`profiling/signatures/`). Padding counts for nothing. A function of the kernel called in a loop is in that loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from backends.types import Instruction, Listing
from profiling.code_identity import same_code
from profiling.code_mix import instruction_mix
from profiling.code_sites import Site, sites_of
from profiling.findings import MethodPresence
from profiling.signature_table import (
    Alternative,
    Change,
    Kind,
    Pattern,
    SignatureError,
    SignatureFile,
    Signatures,
    Where,
    load_signatures,
)

__all__ = ["SignatureError", "Signatures", "check_methods", "instruction_mix", "load_signatures", "same_code"]

_LINES = 4
_VERBS: Mapping[Change, str] = {
    "appears": "appear",
    "grows": "grow",
    "shrinks": "shrink",
    "vanishes": "vanish",
    "present": "be there",
}
_REGISTER = re.compile(r"\bR(\d+)\b")
# How many registers an instruction writes, by its mnemonic.
_RESULT_REGISTERS = (
    (re.compile(r"\.256\b"), 8),
    (re.compile(r"\.128\b|^LDSM.*\.4$|^[HIQ]MMA"), 4),
    (re.compile(r"\.64\b|\.WIDE|^D(?:FMA|ADD|MUL|MMA)|^LDSM.*\.2$|^F(?:FMA|ADD|MUL)2"), 2),
)


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
    if _capability(before.arch) != _capability(after.arch):
        reason = f"the kernels are for different architectures, {before.arch} and {after.arch}"
        return tuple(MethodPresence(m, "unavailable", reason) for m in methods)
    signatures = load_signatures()
    sites = (sites_of(before), sites_of(after))
    return tuple(_presence(m, after.arch, signatures, *sites) for m in methods)


def _capability(arch: str) -> str:
    """An architecture without the letter of its own features: sm_90a runs where sm_90 does."""
    return arch.rstrip("af") if arch.startswith("sm_") else arch


def _presence(
    method: str, arch: str, signatures: Signatures, before: Sequence[Site], after: Sequence[Site]
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


def _changed(pattern: Pattern, before: Sequence[Site], after: Sequence[Site]) -> bool:
    old, new = _measured(pattern, before), _measured(pattern, after)
    if pattern.change == "vanishes":
        return new == 0 < old
    if pattern.change == "shrinks":
        return old > new and old >= new * pattern.by
    relative = pattern.measure in ("share", "densest")
    if (_count(pattern.kind, pattern.where, after) if relative else new) < pattern.least:
        return False
    if pattern.change == "appears":
        return old == 0
    return pattern.change == "present" or (new > old and new >= old * pattern.by)


def _measured(pattern: Pattern, sites: Sequence[Site]) -> float:
    if pattern.measure == "count":
        return _count(pattern.kind, pattern.where, sites)
    if pattern.measure == "share":
        base = _base(pattern, sites)
        return _count(pattern.kind, pattern.where, sites) / base if base else 0.0
    if pattern.where != "innermost":
        return _in_one_loop(pattern, [s.instruction for s in _region(pattern.where, sites)])
    loops: dict[int, list[Instruction]] = {}
    for site in sites:
        if site.loop is not None:
            loops.setdefault(site.loop, []).append(site.instruction)
    return max((_in_one_loop(pattern, loop) for loop in loops.values()), default=0.0)


def _in_one_loop(pattern: Pattern, loop: Sequence[Instruction]) -> float:
    if pattern.measure == "carried":
        return len(_carried(pattern.kind, loop))
    registers = [r for r in map(pattern.kind.register, loop) if r is not None]
    if pattern.measure == "distinct":
        return len(set(registers))
    if pattern.measure == "peak":
        return len(registers)
    base = len(loop) if pattern.of is None else sum(map(pattern.of.holds, loop))
    return len(registers) / base if base else 0.0


def _carried(kind: Kind, loop: Sequence[Instruction]) -> set[int]:
    """Registers that instructions of `kind` read before anything in the loop writes them, and write for the next time.

    One sum that ptxas spreads over many registers counts once.
    """
    written: set[int] = set()
    read_first: set[int] = set()
    results: set[int] = set()
    for instruction in loop:
        operands = [int(r) for r in _REGISTER.findall(instruction.operands)]
        if kind.holds(instruction):
            read_first.update(r for r in operands[1:] if r not in written)
            results.update(operands[:1])
        width = next((w for mark, w in _RESULT_REGISTERS if mark.search(instruction.opcode)), 1)
        written.update(r + i for r in operands[:1] for i in range(width))
    return read_first & results


def _region(where: Where, sites: Sequence[Site]) -> Iterator[Site]:
    for site in sites:
        if where == "anywhere" or (site.in_loop if where == "loop" else site.loop is not None):
            yield site


def _count(kind: Kind, where: Where, sites: Sequence[Site]) -> int:
    return sum(kind.holds(s.instruction) for s in _region(where, sites))


def _base(pattern: Pattern, sites: Sequence[Site]) -> int:
    if pattern.of is None:
        return sum(1 for _ in _region(pattern.where, sites))
    return _count(pattern.of, pattern.where, sites)


def _told(alternative: Alternative, before: Sequence[Site], after: Sequence[Site]) -> str:
    """Such as `fma in loops: 1 of 6 scalar_float before, 24 of 30 after (share must grow)`."""
    parts = []
    for pattern in alternative:
        told = [f"{_measured(pattern, sites):g}" for sites in (before, after)]
        if pattern.measure == "share":
            bases = [_base(pattern, sites) for sites in (before, after)]
            counts = [_count(pattern.kind, pattern.where, sites) for sites in (before, after)]
            told = [f"{count} of {base}" for count, base in zip(counts, bases, strict=True)]
            told[0] += f" {pattern.of.name if pattern.of else 'instructions'}"
        verb = _VERBS[pattern.change]
        by = f" {pattern.by:g} times" if pattern.by > 1 else ""
        parts.append(f"{pattern.label}: {told[0]} before, {told[1]} after ({pattern.measure} must {verb}{by})")
    return " and ".join(parts)


def _evidence(alternative: Alternative, before: Sequence[Site], after: Sequence[Site]) -> Iterator[str]:
    """Lines that show the first pattern: in the kernel where it appeared, in the one before where it went."""
    pattern = alternative[0]
    gone = pattern.change in ("shrinks", "vanishes")
    sites = before if gone else after
    several = len({s.function for s in sites}) > 1
    for site in islice((s for s in _region(pattern.where, sites) if pattern.kind.holds(s.instruction)), _LINES):
        instruction = site.instruction
        to = f" <{instruction.target}>" if instruction.target else ""
        line = f"{instruction.address:x}: {instruction.opcode} {instruction.operands}".rstrip() + to
        place = f"{site.function}: " if several else ""
        yield f"{'before: ' if gone else ''}{place}{line}"
