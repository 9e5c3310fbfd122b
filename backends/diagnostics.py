"""Compiler output cut down to what a reader, or a prompt, needs: the errors, each with its line."""

from __future__ import annotations

import re
from collections.abc import Mapping

MAX_LINES = 60
MAX_BYTES = 6000
_MAX_LINE = 300
_CONTEXT = 5  # the error itself, the source line, the caret, a fix-it

_DIAGNOSTIC = re.compile(r"^(?P<at>.+?:\d+(?::\d+)?: )?(?P<kind>fatal error|error|Error|warning|note|sorry): ")
_DRIVER = re.compile(r"^\S*(?:g\+\+|clang\+\+|c\+\+|cc1plus|collect2|ld|as)(?:\.\w+)?: ")
_LINKER = re.compile(r"undefined reference to|multiple definition of|cannot find -l|relocation .* against")
_ERRORS = {"error", "fatal error", "Error", "sorry"}
_POINTER = re.compile(r"^.+?:\d+(?::\d+)?:\s+(?:required from|note: called from)")


def shorten_paths(text: str, replacements: Mapping[str, str]) -> str:
    """Replace folders that mean nothing to the reader (temporary ones) in `text`."""
    for folder, name in replacements.items():
        text = text.replace(folder, name)
    return text


def errors_only(log: str, own: str) -> str:
    """The errors of a failed build, at most 60 lines and 6 kB.

    Kept are each error with the few lines under it and lines that point into the kernel itself ("required from
    here", "called from here"); warnings, candidate lists and instantiation stacks through headers go.

    Args:
        log: the compiler's output.
        own: name of the kernel's file as the compiler prints it.
    """
    kept: list[str] = []
    room = 0
    for line in filter(str.strip, log.splitlines()):
        kind = _kind(line)
        if kind == "error":
            room = _CONTEXT
        elif line.startswith(f"{own}:") and _POINTER.match(line):
            room = 1
        elif kind is not None or line.startswith("In file included from"):
            room = 0
        if room > 0:
            kept.append(line)
            room -= 1
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


def _kind(line: str) -> str | None:
    """`error`, `other` for warnings and notes, None for a line that belongs to the diagnostic above it."""
    match = _DIAGNOSTIC.match(line)
    if match is not None:
        return "error" if match["kind"] in _ERRORS else "other"
    if _LINKER.search(line) or (_DRIVER.match(line) and "error" in line.lower()):
        return "error"
    return None


def _is_source_error(line: str) -> bool:
    if _LINKER.search(line):
        return True
    match = _DIAGNOSTIC.match(line)
    return match is not None and match["kind"] in _ERRORS and match["at"] is not None


def _cut(line: str) -> str:
    return line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 1] + "…"
