"""Compiler output cut down to what a reader, or a prompt, needs: the errors, each with its line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

MAX_LINES = 60
MAX_BYTES = 6000
_MAX_LINE = 300
_BEHIND_CARET = 60
_CONTEXT = 5  # the error itself, the source line, the caret, a fix-it

# `kernel.cpp:4:10: error: …` of g++ and clang++, `kernel.cu(4): error #20: …` of nvcc's front end.
_DIAGNOSTIC = re.compile(
    r"^(?P<at>.+?(?::\d+(?::\d+)?|\(\d+\)): |At end of source: )?"
    r"(?P<kind>fatal error|catastrophic error|internal error|error|Error|warning|remark|note|sorry)(?: ?#\d+(?:-D)?)?: "
)
_DRIVER = re.compile(r"^\S*(?:g\+\+|clang\+\+|c\+\+|cc1plus|collect2|ld|as)(?:\.\w+)?: ")
_CUDA_TOOL = re.compile(
    r"^(?:nvcc|ptxas|nvlink|fatbinary|cudafe\+\+|cicc)\b(?:.*?; | )(?P<kind>error|fatal|warning|info)\s*: "
)
# What a tool says when it has said all: how many errors there were, or that it stops.
_SUMMARY = re.compile(r"Ptx assembly aborted|^\d+ errors? detected in the compilation|^compilation terminated")
_LINKER = re.compile(r"undefined reference to|multiple definition of|cannot find -l|relocation .* against")
_ERRORS = {"error", "fatal error", "catastrophic error", "internal error", "Error", "sorry", "fatal"}
_POINTER = re.compile(r"^.+?:\d+(?::\d+)?:\s+(?:required from|note: called from)")
# The stack of instantiations under an error of nvcc's front end; without a file it is the error's own.
_INSTANTIATION = re.compile(
    r"^\s+(?:detected during:?\s*)?(?P<what>\S.*?)? ?at line (?P<line>\d+)(?: of \"?(?P<file>[^\"]+?)\"?)?$"
)
_STACK_HEAD = re.compile(r"^\s+(?:detected during:|\[ ?\d+ instantiation contexts not shown ?\])$")
_WHAT_LENGTH = 160


def shorten_paths(text: str, replacements: Mapping[str, str]) -> str:
    """Replace folders that mean nothing to the reader (temporary ones) in `text`."""
    for folder, name in replacements.items():
        text = text.replace(folder, name)
    return text


def errors_only(log: str, own: str) -> str:
    """The errors of a failed build, at most 60 lines and 6 kB.

    Kept are each error with the few lines under it and lines that point into the kernel itself ("required from
    here", "called from here", "at line 3"); warnings, candidate lists and instantiation stacks through headers go.

    Args:
        log: the compiler's output.
        own: name of the kernel's file as the compiler prints it.
    """
    blocks: list[list[str]] = [[]]
    room = 0
    at_own = False
    for line in filter(str.strip, log.splitlines()):
        kind = _kind(line)
        if kind == "error":
            blocks.append([])
            room = _CONTEXT
            at_own = line.startswith((f"{own}(", f"{own}:"))
        elif line.startswith(f"{own}:") and _POINTER.match(line):
            room = 1
        elif kind is None and (frame := _INSTANTIATION.match(line)):
            if frame["file"] == own or (frame["file"] is None and at_own):
                blocks[-1].append(f"    at line {frame['line']} of {own}: {(frame['what'] or '')[:_WHAT_LENGTH]}")
            continue
        elif kind is not None or line.startswith("In file included from") or _STACK_HEAD.match(line):
            room = 0
        if room > 0:
            blocks[-1].append(line)
            room -= 1
    # A template that is instantiated ten times fails ten times.
    kept = [line for block in dict.fromkeys(map(tuple, blocks)) for line in _around_carets(block)]
    if not kept:
        return bounded(log)
    return bounded("\n".join(kept), dropped=len(log.splitlines()) - len(kept))


def first_error(log: str) -> str:
    """The first line that says what is wrong; driver lines such as "collect2: error" only where nothing else is."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for wanted in (_is_source_error, lambda line: _kind(line) == "error"):
        for line in lines:
            if wanted(line):
                return _cut(line)
    return _cut(lines[0]) if lines else "the compiler failed and said nothing"


def bounded(text: str, dropped: int = 0) -> str:
    """`text` within 60 lines and 6 kB, ending in how many lines were left out."""
    lines = [_cut(line) for line in text.strip().splitlines()]
    kept: list[str] = []
    size = 0
    for line in lines[:MAX_LINES]:
        size += len(line.encode()) + 1
        if size > MAX_BYTES:
            break
        kept.append(line)
    left_out = len(lines) - len(kept) + dropped
    if left_out > 0:
        kept.append(f"[{left_out} more lines left out]")
    return "\n".join(kept)


def _around_carets(block: Sequence[str]) -> list[str]:
    """The block with the part of each long source line that its caret points at."""
    lines = list(block)
    for i in range(1, len(lines)):
        column = lines[i].find("^")
        if column > _MAX_LINE - _BEHIND_CARET and not lines[i][:column].strip(" |"):
            start = column + _BEHIND_CARET - _MAX_LINE + 1
            lines[i - 1] = "…" + lines[i - 1][start:]
            lines[i] = " " + lines[i][start:]
    return lines


def _kind(line: str) -> str | None:
    """`error`, `other` for warnings, notes and summaries, None for a line that belongs to the diagnostic above it."""
    if _SUMMARY.search(line):
        return "other"
    match = _DIAGNOSTIC.match(line) or _CUDA_TOOL.match(line)
    if match is not None:
        return "error" if match["kind"] in _ERRORS else "other"
    if _LINKER.search(line) or (_DRIVER.match(line) and "error" in line.lower()):
        return "error"
    return None


def _is_source_error(line: str) -> bool:
    if _LINKER.search(line):
        return True
    match = _DIAGNOSTIC.match(line)
    if match is not None:
        return match["kind"] in _ERRORS and match["at"] is not None
    return _CUDA_TOOL.match(line) is not None and _kind(line) == "error"


def _cut(line: str) -> str:
    return line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 1] + "…"
