"""What `cuobjdump --dump-sass` and `nvdisasm` print, read into functions whose instructions know their loops."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from backends.demangle import demangled
from backends.loops import Step, instruction_depths
from backends.types import Function, Instruction, Listing

_ARCH = re.compile(r"sm_(\d+)([a-z]?)")
_TARGET = re.compile(r"^\s*(?:code for|\.target|arch =)\s+(sm_\d+[a-z]?)\b")
# Disassemblers before 13.0 say the architecture in the header flags alone.
_FLAGS = re.compile(r"\bEF_CUDA_SM(\d+)\b")
_FUNCTION = re.compile(r"^\s*Function\s*:\s*(\S+)")
_SECTION = re.compile(r"^\s*\.section\s+([^\s,]+)")
_LABEL = re.compile(r"^(\S+):\s*$")
_LINE = re.compile(r"^\s*\{?\s*/\*([0-9a-f]{4,})\*/\s+(.*)$")
_COMMENT = re.compile(r"/\*.*?\*/")
_CASES = re.compile(r'\(\*"(?:BRANCH_TARGETS|INDIRECT_CALL_TARGETS)?\s*(.*?)"\*\)')
_PREDICATE = re.compile(r"(@!?U?P(?:\d+|T))\s+")
_NAMED = re.compile(r"`\(([^()]+(?:\([^()]*\)[^()]*)*)\)")
_ADDRESS = re.compile(r"(?:^|\s)0x([0-9a-f]+)$")
# What follows the name of a symbol in a branch target: `kernel + 0x40`.
_OFFSET = re.compile(r"\s*\+\s*0x([0-9a-f]+)$")

_JUMP = re.compile(r"(?:BRA|JMP)(?:\..*)?")
_COMPUTED = re.compile(r"(?:BRX|BRXU|JMX|JMXU)(?:\..*)?")
# Leave the straight line for the handler of a warp whose lanes have parted. It lies outside the loop that it serves.
_DIVERGED = re.compile(r"BRA\.(?:DIV|CONV)(?:\..*)?")
_CALL = re.compile(r"CALL(?:\..*)?")
_LEAVES = re.compile(r"(?:EXIT|RET|KILL|RTT|LONGJMP)(?:\..*)?")
_RETURN = re.compile(r"RET(?:\..*)?")
_LAST = re.compile(r"NOP|BRA(?:\..*)?")


@dataclass(slots=True)
class _Section:
    """The lines of one kernel, before anything is known of its flow. `labels` holds addresses by name."""

    name: str
    lines: list[str] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Decoded:
    """An instruction before its loops are known. `to` is where its one written target lies."""

    address: int
    opcode: str
    predicate: str
    operands: str
    to: int | None
    cases: tuple[int, ...]
    symbol: str | None

    @property
    def conditional(self) -> bool:
        """Predicated, or with a predicate among the operands: `BRA.U !UP0, 0x90`."""
        return bool(self.predicate) or not re.fullmatch(r"0x[0-9a-f]+", self.operands)


def parse_sass(text: str, arch: str) -> Listing:
    """Read a disassembly of GPU code.

    A local subroutine (the slow path of a division, a function that was not inlined) is a function of its own, named
    after its symbol where the disassembler gives one. Padding behind the last instruction is left out. Branch targets
    are addresses in both dialects, and a predicate stands before the operands: `@!P0 0x90`.

    Args:
        text: the output of `cuobjdump --dump-sass` or `nvdisasm`, with or without encodings, for any number of cubins.
        arch: the architecture wanted, such as `sm_90`. Where the text has none of that number, an older one of the same
            generation is taken, else the newest.

    Returns:
        The kernels of that architecture, with `arch` as the text has it; no functions where there are none.
    """
    found = _sections(text)
    chosen = _choose(found, arch)
    sections = found.get(chosen, [])
    symbols = {n for s in sections for n in (s.name, *s.labels)}
    names = demangled(sorted(symbols | {n.rpartition("$")[2] for n in symbols}))
    functions = [f for s in sections for f in _functions(s, lambda name: names.get(name, name))]
    shown = "\n\n".join("\n".join([f"{names.get(s.name, s.name)}:", *s.lines]) for s in sections)
    return Listing(chosen or arch, tuple(functions), shown)


def _choose(found: Mapping[str, Sequence[_Section]], wanted: str) -> str:
    def order(arch: str) -> tuple[int, str]:
        match = _ARCH.fullmatch(arch)
        return (int(match[1]), match[2]) if match else (0, "")

    having = sorted((a for a, sections in found.items() if sections), key=order)
    if wanted in having or not having:
        return wanted if having else ""
    number = order(wanted)[0]
    same = [a for a in having if order(a)[0] == number]
    runs = [a for a in having if order(a)[0] // 10 == number // 10 and order(a)[0] < number and not order(a)[1]]
    return (same or runs or having)[-1]


def _sections(text: str) -> dict[str, list[_Section]]:
    """The kernels per architecture, in the order of the text."""
    found: dict[str, list[_Section]] = {}
    arch = ""
    section: _Section | None = None
    pending: list[str] = []
    for line in text.splitlines():
        if line.lstrip(" \t{").startswith("/*"):  # most lines: an instruction, or the second half of its encoding
            if section is not None and (code := _LINE.match(line)):
                section.labels.update(dict.fromkeys(pending, int(code[1], 16)))
                section.lines.extend(f"{label}:" for label in pending if not label.startswith(".text."))
                section.lines.append(_COMMENT.sub("", line[: code.start(2)]) + _shown(code))
                pending = []
        elif target := _TARGET.match(line):
            arch, section = target[1], None
        elif ".headerflags" in line and not arch and (flags := _FLAGS.search(line)):
            arch = f"sm_{flags[1]}" + ("a" if "EF_CUDA_ACCELERATORS" in line else "")
        elif name := _FUNCTION.match(line):
            section = _Section(name[1])
            found.setdefault(arch, []).append(section)
        elif place := _SECTION.match(line):
            section, pending = None, []
            if place[1].strip('"').startswith(".text."):
                section = _Section(place[1].strip('"').removeprefix(".text."))
                found.setdefault(arch, []).append(section)
        elif section is not None and (label := _LABEL.match(line)):
            pending.append(label[1])
    return found


def _shown(code: re.Match[str]) -> str:
    """A line without its encoding."""
    return f"/*{code[1]}*/ {_COMMENT.sub('', code[2]).rstrip()}"


def _functions(section: _Section, demangle: Callable[[str], str]) -> Iterator[Function]:
    decoded = [d for d in (_decode(line, section.labels) for line in section.lines) if d is not None]
    while decoded and _is_trailing(decoded[-1]):
        decoded.pop()
    starts = _subroutines(decoded, section)
    symbols = {address: n for n, address in section.labels.items() if not n.startswith(".")}
    own = demangle(section.name)
    names = {start: _subroutine_name(own, start, symbols, demangle) for start in starts}
    bounds = [d.address for d in decoded]
    cuts = [0, *(bisect_left(bounds, start) for start in starts), len(decoded)]
    for start, (low, high) in zip((None, *starts), pairwise(cuts), strict=True):
        part = decoded[low:high]
        depths = instruction_depths([_step(d, names) for d in part])
        yield Function(
            own if start is None else names[start],
            tuple(_instruction(d, depth, names, demangle) for d, depth in zip(part, depths, strict=True)),
        )


def _subroutine_name(own: str, start: int, symbols: Mapping[int, str], demangle: Callable[[str], str]) -> str:
    symbol = symbols.get(start)
    return f"{own} [{start:#x}]" if symbol is None else f"{own} [{demangle(symbol.rpartition('$')[2])}]"


def _decode(line: str, labels: Mapping[str, int]) -> _Decoded | None:
    match = _LINE.match(line)
    if match is None:
        return None
    cases = _CASES.search(match[2])
    code = _CASES.sub("", match[2]).strip().rstrip("}").rstrip().rstrip(";").strip()
    predicate = _PREDICATE.match(code)
    if predicate:
        code = code[predicate.end() :]
    opcode, _, operands = code.partition(" ")
    operands, symbol = _resolved(operands.strip(), labels)
    to = _ADDRESS.search(operands)
    return _Decoded(
        address=int(match[1], 16),
        opcode=opcode,
        predicate=predicate[1] if predicate else "",
        operands=operands,
        to=int(to[1], 16) if to else None,
        cases=tuple(labels[c] for c in map(str.strip, cases[1].split(",")) if c in labels) if cases else (),
        symbol=symbol,
    )


def _resolved(operands: str, labels: Mapping[str, int]) -> tuple[str, str | None]:
    """Operands with a label replaced by its address, as cuobjdump prints it, and the symbol that it named."""
    named = _NAMED.search(operands)
    if named is None:
        return operands, None
    name = _OFFSET.sub("", named[1])
    offset = _OFFSET.search(named[1])
    address = labels.get(name, 0) + (int(offset[1], 16) if offset else 0)
    return operands[: named.start()] + f"{address:#x}" + operands[named.end() :], None if name[0] == "." else name


def _is_trailing(d: _Decoded) -> bool:
    """Padding, or the jump to itself that ptxas puts behind the last instruction."""
    if _LAST.fullmatch(d.opcode) is None:
        return False
    return d.opcode == "NOP" or (d.to == d.address and not d.conditional)


def _subroutines(decoded: Sequence[_Decoded], section: _Section) -> list[int]:
    """Addresses where local subroutines begin: symbols within the kernel, and called code that returns.

    The kernel itself ends in EXIT. A call to a place that no RET follows is a jump.
    """
    if not decoded:
        return []
    first, last = decoded[0].address, decoded[-1].address
    called = {d.to for d in decoded if _CALL.fullmatch(d.opcode) and d.to is not None and _is_direct(d)}
    named = {address for name, address in section.labels.items() if not name.startswith(".")}
    candidates = sorted(a for a in called | named if first < a <= last)
    returns = [d.address for d in decoded if _RETURN.fullmatch(d.opcode)]
    return [
        low
        for low, high in pairwise([*candidates, last + 1])
        if low in named or bisect_left(returns, low) < bisect_left(returns, high)
    ]


def _is_direct(d: _Decoded) -> bool:
    return re.fullmatch(r"0x[0-9a-f]+", d.operands) is not None


def _step(d: _Decoded, subroutines: Mapping[int, str]) -> Step:
    if _COMPUTED.fullmatch(d.opcode):
        return Step(d.address, d.cases, falls_through=bool(d.predicate), computed=not d.cases)
    if _LEAVES.fullmatch(d.opcode):
        return Step(d.address, falls_through=bool(d.predicate))
    called = _CALL.fullmatch(d.opcode) is not None
    jumps = _JUMP.fullmatch(d.opcode) is not None and _DIVERGED.fullmatch(d.opcode) is None
    if d.to is None or not (jumps or (called and _is_direct(d) and d.to not in subroutines)):
        return Step(d.address)
    return Step(d.address, (d.to,), falls_through=d.conditional)


def _instruction(d: _Decoded, depth: int, names: Mapping[int, str], demangle: Callable[[str], str]) -> Instruction:
    target = None
    if _CALL.fullmatch(d.opcode):
        local = names.get(d.to) if d.to is not None and _is_direct(d) else None
        target = local or (demangle(d.symbol) if d.symbol and _is_direct(d) else None)
    return Instruction(d.address, d.opcode, f"{d.predicate} {d.operands}".strip(), depth, target)
