"""What `ptxas -v` says each device function takes, and its log without that."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from backends.demangle import demangled
from backends.types import KernelResources

_ENTRY = re.compile(r"ptxas info\s*: Compiling entry function '(?P<name>[^']+)' for '(?P<arch>sm_\w+)'")
_PROPERTIES = re.compile(r"ptxas info\s*: Function properties for (?P<name>\S+)")
_STACK = re.compile(
    r"\s*(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
)
_USED = re.compile(r"ptxas info\s*: (?:\(C\d+\) )?Used (?P<registers>\d+) registers(?P<rest>.*)")
_SHARED = re.compile(r"\b(\d+)(?:\+\d+)? bytes smem")
_CONSTANT = re.compile(r"\b(\d+)(?:\+\d+)? bytes cmem\[\d+\]")
_OTHER = re.compile(r"ptxas info\s*: (?:\d+ bytes gmem|Compile time =|Overriding )")
_Key = tuple[str, str]
_PTX_ERROR = re.compile(r"^ptxas (?P<file>.+\.ptx), line (?P<line>\d+); (?:error|fatal)\s*:")
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]+)"')


def parse_resources(log: str) -> tuple[KernelResources, ...]:
    """Read the log of nvcc with `-Xptxas -v`, in the order in which ptxas compiled.

    One entry per kernel and architecture. Functions that were not inlined have no registers of their own and are listed
    where they keep a stack or spill. Shared memory that ptxas does not mention is none: it leaves out zeros. Constant
    banks that it does not mention stay None, for from sm_90 on it is silent about the parameters' bank.
    """
    found: dict[_Key, KernelResources] = {}
    kernels: set[_Key] = set()
    entry: _Key | None = None
    described: _Key | None = None
    for line in log.splitlines():
        if match := _ENTRY.match(line):
            entry = described = (match["name"], match["arch"])
            kernels.add(entry)
            found[entry] = KernelResources(*entry)
        elif entry is None:
            continue
        elif match := _PROPERTIES.match(line):
            described = (match["name"], entry[1])
            found.setdefault(described, KernelResources(*described))
        elif described is not None and (match := _STACK.match(line)):
            found[described] = replace(
                found[described],
                stack_bytes=int(match["stack"]),
                spill_store_bytes=int(match["stores"]),
                spill_load_bytes=int(match["loads"]),
            )
        elif match := _USED.match(line):
            found[entry] = _used(found[entry], int(match["registers"]), match["rest"])
    return _named([kernel for key, kernel in found.items() if key in kernels or _uses_local(kernel)])


def without_resources(log: str) -> str:
    """The log less the lines that `parse_resources` reads: warnings, notes and advice stay."""
    patterns = (_ENTRY, _PROPERTIES, _STACK, _USED, _OTHER)
    return "\n".join(line for line in log.splitlines() if not any(p.match(line) for p in patterns))


def with_ptx_lines(log: str, work: Path) -> str:
    """The log with, under each error that names a line of PTX, that line and the source line it came from.

    Args:
        log: nvcc's, with the names of files kept in `work`.
        work: the folder in which nvcc ran with `--keep`.
    """
    lines: list[str] = []
    for line in log.splitlines():
        lines.append(line)
        match = _PTX_ERROR.match(line)
        if match:
            file = (work / match["file"]).resolve()
            # A kernel can print such a line too, with a name of its choice.
            lines += _ptx_line(file, int(match["line"])) if file.is_relative_to(work.resolve()) else []
    return "\n".join(lines)


def _ptx_line(file: Path, number: int) -> list[str]:
    try:
        ptx = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    if not 0 < number <= len(ptx):
        return []
    origin = _origin(ptx, number)
    return [f"    {ptx[number - 1].strip()}", *([f"    from {origin}"] if origin else [])]


def _origin(ptx: Sequence[str], number: int) -> str | None:
    """File and line of the source behind a line of PTX."""
    loc = next((m for line in reversed(ptx[:number]) if (m := _LOC.match(line))), None)
    if loc is None:
        return None
    files = {m[1]: m[2] for line in ptx if (m := _FILE.match(line))}
    return f"{files[loc[1]]}:{loc[2]}" if loc[1] in files else None


def _used(kernel: KernelResources, registers: int, rest: str) -> KernelResources:
    constant = [int(count) for count in _CONSTANT.findall(rest)]
    shared = _SHARED.search(rest)
    return replace(
        kernel,
        registers=registers,
        shared_bytes=int(shared[1]) if shared else 0,
        constant_bytes=sum(constant) if constant else None,
    )


def _uses_local(function: KernelResources) -> bool:
    return any((function.stack_bytes, function.spill_store_bytes, function.spill_load_bytes))


def _named(kernels: list[KernelResources]) -> tuple[KernelResources, ...]:
    names = demangled(kernel.name for kernel in kernels)
    return tuple(replace(kernel, name=names.get(kernel.name, kernel.name)) for kernel in kernels)
