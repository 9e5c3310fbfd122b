"""What `objdump -d --no-show-raw-insn -C` prints, read into functions whose instructions know their loops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from backends.loops import Step, instruction_depths
from backends.types import Function, Instruction, Listing

_FORMAT = re.compile(r"^.*:\s+file format (\S+)", re.MULTILINE)
_SECTION = re.compile(r"^Disassembly of section (\S+):$")
_SYMBOL = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_LINE = re.compile(r"^\s*([0-9a-f]+):\s*\t(.*)$")
_NAMED = re.compile(r"<(.+)>")
_ADDRESS = re.compile(r"(?:^|[\s,])(?:0x)?([0-9a-f]+)$")
_OFFSET = re.compile(r"[+-]0x[0-9a-f]+$")
_VERSION = re.compile(r"@+[\w.]+$")  # `expf@plt`, `expf@GLIBC_2.27`, `expf@@Base`

_ARCHITECTURES = {"elf64-x86-64": "x86_64", "elf64-littleaarch64": "aarch64"}
_SKIPPED_SECTIONS = (".plt", ".init", ".fini", ".iplt")
# What crti.o, crtbeginS.o and libgcc add to every library.
_RUNTIME = re.compile(
    r"_init|_fini|(?:de)?register_tm_clones|__do_global_(?:dtors|ctors)_aux|frame_dummy|call_weak_fn|"
    r"__cpu_indicator_init.*|init_have_lse_atomics|__aarch64_\w+|.+@plt(?:-0x[0-9a-f]+)?"
)
_PREFIX = re.compile(
    r"(?:data16|data32|addr32|addr16|[cdefgs]s|repn?[ez]?|repnz|lock|bnd|notrack|xacquire|xrelease|rex(?:\.\w+)?|\{\w+\})$"
)
_JUMP = re.compile(r"j[a-z]+|loop(?:n?[ez])?|b|bc?\.[a-z]+|cbn?z|tbn?z|xbegin")
_ALWAYS = re.compile(r"jmpq?|b")
_CALL = re.compile(r"callq?|bl")
_INDIRECT = re.compile(r"br(?:a[ab]z?)?")
_LEAVES = re.compile(r"(?:ret|iret|ud[012]|hlt|udf|eret|retaa|retab)[qlw]?")
_PADDING = re.compile(r"nop[wlq]?|int3|xchg")


@dataclass(frozen=True, slots=True)
class _Decoded:
    """An instruction before its loops are known; `to` is the address that it jumps to, where it is in the text."""

    instruction: Instruction
    to: int | None
    jumps: bool
    falls_through: bool
    anywhere: bool


def parse_objdump(output: str) -> Listing:
    """Read a disassembly, keeping the functions that the kernel's own source brought.

    Linker stubs and what the C runtime adds to every library are left out; lambdas, outlined OpenMP regions, cold parts
    and instantiated templates stay.
    """
    found = _FORMAT.search(output)
    architecture = found[1] if found else "unknown"
    functions: list[Function] = []
    text: list[str] = []
    for name, lines in _functions(output):
        decoded = [d for d in map(_decode, lines) if d is not None]
        while decoded and _is_padding(decoded[-1].instruction):
            decoded.pop()
        functions.append(Function(name, tuple(_with_loops(decoded))))
        text.append("\n".join([f"<{name}>:", *lines]))
    return Listing(_ARCHITECTURES.get(architecture, architecture), tuple(functions), "\n\n".join(text))


def _functions(output: str) -> Iterator[tuple[str, list[str]]]:
    skipped = False
    name: str | None = None
    lines: list[str] = []
    for line in output.splitlines():
        section, symbol = _SECTION.match(line), _SYMBOL.match(line)
        if section or symbol:
            if name is not None:
                yield name, lines
            name, lines = None, []
        if section:
            skipped = section[1].startswith(_SKIPPED_SECTIONS)
        elif symbol and not skipped and not _RUNTIME.fullmatch(symbol[1]):
            name = symbol[1]
        elif name is not None and line.strip():
            lines.append(line)
    if name is not None:
        yield name, lines


def _decode(line: str) -> _Decoded | None:
    match = _LINE.match(line)
    if match is None:
        return None
    code = match[2].split(" // ")[0]
    named = _NAMED.search(code)
    code = re.sub(r"\s*#.*$", "", _NAMED.sub("", code)).strip()
    words = code.split(None, 1)
    while len(words) == 2 and _PREFIX.match(words[0]):
        words = words[1].split(None, 1)
    if not words:
        return None
    opcode = words[0].partition(",")[0]  # branch hints: `jne,pt`
    operands = words[1].strip() if len(words) == 2 else ""
    jumps, calls = bool(_JUMP.fullmatch(opcode)), bool(_CALL.fullmatch(opcode))
    computed = bool(_INDIRECT.fullmatch(opcode)) or (jumps and "*" in operands)
    address = _ADDRESS.search(operands) if jumps and not computed else None
    target = None
    if named and (jumps or calls or computed):
        target = _VERSION.sub("", _OFFSET.sub("", named[1]))
    return _Decoded(
        Instruction(int(match[1], 16), opcode, operands, 0, target),
        to=int(address[1], 16) if address else None,
        jumps=jumps,
        falls_through=not (computed or _ALWAYS.fullmatch(opcode) or _LEAVES.fullmatch(opcode)),
        anywhere=computed and target is None,
    )


def _is_padding(instruction: Instruction) -> bool:
    if instruction.opcode == "xchg":
        return instruction.operands == "%ax,%ax"
    return bool(_PADDING.fullmatch(instruction.opcode))


def _with_loops(decoded: Sequence[_Decoded]) -> Iterator[Instruction]:
    steps = [_step(d) for d in decoded]
    for d, depth in zip(decoded, instruction_depths(steps), strict=True):
        yield replace(d.instruction, loop_depth=depth)


def _step(d: _Decoded) -> Step:
    to = () if d.to is None else (d.to,)
    return Step(d.instruction.address, to, d.falls_through, d.anywhere)
