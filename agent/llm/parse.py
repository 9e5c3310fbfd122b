"""The one tolerant parser of answers: one JSON object, or the exact bytes of one kernel, out of what a model wrote.

Tolerant of what surrounds the answer (fences, prose), never of what is in it: the JSON is strict, the code is returned
byte for byte, and an answer that was cut off is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_C_FAMILY = frozenset({"cpp", "c++", "cxx", "cc", "c", "cuda", "cu", "hpp", "h", "cutlass"})
_PYTHON = frozenset({"python", "python3", "py", "triton"})
_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})(?P<info>[^`\r\n]*)\r?\n?$")
_C_TOKENS = re.compile(
    r'//[^\n]*|/\*.*?\*/|/\*|R"(?P<d>[^()\\\s]{0,16})\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S
)
_PYTHON_TOKENS = re.compile(
    r'#[^\n]*|"""(?:\\.|.)*?"""|\'\'\'(?:\\.|.)*?\'\'\'|"""|\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S
)
_BARE_C = re.compile(r"\s*(#\s*(include|if|ifdef|ifndef|define|pragma)\b|//|/\*|extern\s+\"C\"|template\s*<)")
_BARE_PYTHON = re.compile(r'\s*(import [\w., ]+$|from [\w.]+ import |""")', re.M)


class Unreadable(Exception):
    """An answer that cannot be used; the message is the reason, worded for the model that wrote it."""


# ---------------------------------------------------------------------------------------------------------- JSON


def extract_json(text: str) -> Mapping[str, Any]:
    """The one JSON object of an answer.

    A fenced `json` block comes first; else the first balanced object that is strict JSON. Duplicate keys, NaN and
    infinities are refused, and an object that was cut off is never replaced by one inside it.

    Raises:
        Unreadable: with the reason.
    """
    if not text.strip():
        raise Unreadable("the answer is empty")
    failed: list[tuple[int, str]] = []
    for candidate in _json_candidates(text):
        try:
            value = _strict_json(candidate)
        except (ValueError, RecursionError) as error:
            failed.append((len(candidate), str(error) if isinstance(error, ValueError) else "it is nested too deep"))
            continue
        if isinstance(value, dict):
            return value
        raise Unreadable(f"the answer is a JSON {type(value).__name__}, not an object")
    if not failed:
        raise Unreadable("the answer holds no JSON object")
    raise Unreadable(f"the JSON object of the answer is not valid: {max(failed)[1]}")


def _json_candidates(text: str) -> Iterator[str]:
    whole = text.strip()
    if whole[0] in "{[" and whole[-1] in "}]":
        yield whole
    for block in _blocks(text):
        if block.closed and block.language == "json":
            yield block.content.strip()
    position = 0
    while (start := text.find("{", position)) >= 0:
        end = _balanced_end(text, start)
        if end is not None:
            yield text[start:end]
            position = end
        elif re.match(r'\{\s*("|$)', text[start:]):
            # Looking inside it would take a part for the whole.
            raise Unreadable("the JSON object is cut off before its end")
        else:
            position = start + 1


def _balanced_end(text: str, start: int) -> int | None:
    """The index after the brace that closes the one at `start`; braces inside JSON strings do not count."""
    depth = 0
    for token in re.compile(r'"(?:\\.|[^"\\])*"|[{}]', re.S).finditer(text, start):
        if token.group() == "{":
            depth += 1
        elif token.group() == "}":
            depth -= 1
            if depth == 0:
                return token.end()
    return None


def _strict_json(text: str) -> object:
    return json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_refuse_constant, parse_float=_finite)


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return made


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits} is too large")
    return value


# ---------------------------------------------------------------------------------------------------------- code


@dataclass(frozen=True, slots=True)
class _Block:
    language: str
    content: str
    closed: bool


def extract_code(text: str, language: str) -> str:
    """The one kernel of an answer, byte for byte as between its fences, its last newline included.

    Of several blocks in the language (or in none) the kernel is the last one at least half as long as the longest: a
    corrected version comes after the first, and snippets are short. A fence within an open block comment or docstring
    is part of the code. An answer that is nothing but code needs no fence.

    Args:
        text: the answer.
        language: `cpp`, `cuda`, `cutlass`, `triton` or `python`.

    Raises:
        Unreadable: with the reason; above all when the block is not closed, for then the answer was cut.
    """
    family = _family(language)
    blocks = _blocks(text, family)
    wanted = [b for b in blocks if b.language in family] or [b for b in blocks if not b.language]
    if not wanted:
        if blocks:
            found = ", ".join(sorted({b.language for b in blocks}))
            raise Unreadable(f"the answer holds no code block in {language}, only in {found}")
        if (_BARE_C if "cpp" in family else _BARE_PYTHON).match(text):
            return text
        raise Unreadable("the answer holds no fenced code block")
    if not all(block.closed for block in wanted):
        raise Unreadable("the code block is not closed: the answer was cut before its end")
    longest = max(len(block.content) for block in wanted)
    code = [block.content for block in wanted if 2 * len(block.content) >= longest][-1]
    if not code.strip():
        raise Unreadable("the code block is empty")
    return code


def _family(language: str) -> frozenset[str]:
    for family in (_C_FAMILY, _PYTHON):
        if language.lower() in family:
            return family
    raise ValueError(f"no code blocks are known in {language!r}")


def _blocks(text: str, family: frozenset[str] = frozenset()) -> list[_Block]:
    """Fenced blocks after CommonMark, but a fence inside an open comment of the code does not close it."""
    blocks: list[_Block] = []
    lines = text.split("\n")
    lines = [f"{line}\n" for line in lines[:-1]] + lines[-1:]
    index = 0
    while index < len(lines):
        opening = _FENCE.match(lines[index])
        index += 1
        if opening is None:
            continue
        language = opening["info"].strip().split(" ")[0].split("{")[0].lower()
        indent = len(opening["indent"])
        content: list[str] = []
        closed = False
        while index < len(lines):
            line = lines[index]
            index += 1
            fence = _FENCE.match(line)
            if fence and fence["fence"].startswith(opening["fence"]) and not _in_comment("".join(content), family):
                closed = not fence["info"].strip()
                if not closed:
                    # A fence that names a language opens the next block: this one was never closed.
                    index -= 1
                break
            content.append(line[min(indent, len(line) - len(line.lstrip(" \t"))) :])
        blocks.append(_Block(language, "".join(content), closed))
    return blocks


def _in_comment(code: str, family: frozenset[str]) -> bool:
    """Whether the code ends inside a block comment (C) or a triple-quoted string (Python)."""
    if not family:
        return False
    tokens, openers = (_C_TOKENS, ("/*",)) if "cpp" in family else (_PYTHON_TOKENS, ('"""', "'''"))
    return any(token.group() in openers for token in tokens.finditer(code))
