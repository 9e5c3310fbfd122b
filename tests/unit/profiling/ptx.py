"""Runs our own PTX without a GPU: the few instructions that it has, its threads in a random order."""

from __future__ import annotations

import operator
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_TICK_NS = 7  # of the timer, each time it is read
_ARITHMETIC: Mapping[str, Callable[..., int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "mad": lambda a, b, c: a * b + c,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "rem": operator.mod,
    "mov": int,
    "cvt": int,
}


@dataclass
class Gpu:
    """Memory by the byte, zeros where nothing was written, and a timer."""

    memory: dict[int, int] = field(default_factory=dict)
    timer_ns: int = 1000

    def load(self, address: int, size: int) -> int:
        """An unsigned integer of `size` bytes."""
        return sum(self.memory.get(address + i, 0) << 8 * i for i in range(size))

    def store(self, address: int, value: int, size: int) -> None:
        """The lowest `size` bytes of `value`."""
        self.memory.update({address + i: value >> 8 * i & 255 for i in range(size)})

    def launch(
        self, text: str, entry: str, arguments: Sequence[int], grid: int, block: int, seed: int
    ) -> dict[int, int]:
        """Run a kernel of `text` to its end, a thread at a time up to where others may see it; when each block ended.

        Raises:
            KeyError: an instruction, label or register that is not known here.
        """
        kernel = Kernel.parse(text, entry)
        given = dict(zip(kernel.parameters, arguments, strict=True))
        shape = {"%ntid.x": block, "%nctaid.x": grid}
        running = {
            b: {t: kernel.thread(self, given, {**shape, "%ctaid.x": b, "%tid.x": t}) for t in range(block)}
            for b in range(grid)
        }
        waiting: dict[int, set[int]] = {b: set() for b in running}
        order, ended = random.Random(seed), {}
        while running:
            b = order.choice(list(running))
            ready = [t for t in running[b] if t not in waiting[b]]
            if not ready:
                waiting[b].clear()
                continue
            t = order.choice(ready)
            step = next(running[b][t], None)
            if step == "barrier":
                waiting[b].add(t)
            elif step is None:
                del running[b][t]
                if not running[b]:
                    del running[b]
                    ended[b] = self.timer_ns
        return ended


@dataclass(frozen=True)
class Kernel:
    """An entry of a module."""

    parameters: tuple[str, ...]
    code: tuple[tuple[str, str, tuple[str, ...]], ...]
    labels: Mapping[str, int]

    @classmethod
    def parse(cls, text: str, entry: str) -> Kernel:
        """Read it: predicate, opcode and operands of each instruction."""
        start = text.index(f".entry {entry}(")
        head, _, body = text[start:].partition(")")
        code: list[tuple[str, str, tuple[str, ...]]] = []
        labels = {}
        for line in map(str.strip, body.split("\n")):
            if line == "}":
                break
            if line.endswith(":"):
                labels[line[:-1]] = len(code)
            elif line.endswith(";") and not line.startswith(".reg"):
                predicate, line = line[1:].split(" ", 1) if line.startswith("@") else ("", line)
                opcode, _, operands = line[:-1].partition(" ")
                code.append((predicate, opcode, tuple(re.findall(r"[%\w.]+(?:\+\d+)?", operands))))
        return cls(tuple(re.findall(r"\.param \.u\d+ (\w+)", head)), tuple(code), labels)

    def thread(self, gpu: Gpu, given: Mapping[str, int], place: Mapping[str, int]) -> Iterator[str]:
        """One thread, which stops at barriers and wherever it touches memory."""
        registers: dict[str, int] = dict(place)

        def value(operand: str) -> int:
            if operand == "%globaltimer":
                gpu.timer_ns += _TICK_NS
                return gpu.timer_ns
            base, _, offset = operand.partition("+")
            return (registers[base] if base.startswith("%") else int(base)) + int(offset or 0)

        at = 0
        while True:
            predicate, opcode, operands = self.code[at]
            at += 1
            if predicate and not registers[predicate]:
                continue
            name, *modifiers = opcode.split(".")
            bits = int(re.sub(r"\D", "", modifiers[-1]) or 0) if modifiers else 0
            match name:
                case "ret":
                    return
                case "bra":
                    at = self.labels[operands[0]]
                case "bar":
                    yield "barrier"
                case "membar":
                    yield "memory"
                case "setp":
                    a, b = (_signed(value(x), bits) if modifiers[1].startswith("s") else value(x) for x in operands[1:])
                    registers[operands[0]] = getattr(operator, modifiers[0])(a, b)
                case "ld" if modifiers[0] == "param":
                    registers[operands[0]] = given[operands[1]]
                case "ld":
                    *into, address = operands
                    for i, register in enumerate(into):
                        registers[register] = gpu.load(value(address) + i * bits // 8, bits // 8)
                    yield "memory"
                case "st":
                    gpu.store(value(operands[0]), value(operands[1]), bits // 8)
                    yield "memory"
                case "atom":
                    into_, address, operand = operands
                    registers[into_] = old = gpu.load(value(address), bits // 8)
                    new = old + value(operand) if "add" in modifiers else min(old, value(operand))
                    gpu.store(value(address), new, bits // 8)
                    yield "memory"
                case _:
                    wide = 2 * bits if "wide" in modifiers else bits
                    found = _ARITHMETIC[name](*map(value, operands[1:]))
                    registers[operands[0]] = found & ((1 << (64 if name == "cvt" else wide)) - 1)


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value
