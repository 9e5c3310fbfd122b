"""Preprocessor output read back: which lines the user wrote, and where each of them came from."""

from __future__ import annotations

import re
from dataclasses import dataclass

# nvcc includes this in front of every unit, from a folder that GCC takes for the user's.
_TOOLKIT_HEADER = "cuda_runtime.h"
_COMMAND_LINE = "<command-line>"
_MARKER = re.compile(r'^#(?:line)? (\d+) "((?:[^"\\]|\\.)*)"((?: \d)*)\s*$')
_ESCAPE = re.compile(r"\\([0-7]{3}|.)")
_ENTER, _LEAVE, _SYSTEM = "1", "2", "3"


@dataclass(frozen=True, slots=True)
class Origin:
    """A line of a source file: the name as the preprocessor printed it and the number counted from 1."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class UserText:
    """The part of a preprocessed unit that comes from the main file and from user headers.

    Attributes:
        text: those lines, markers and pragmas blanked, system headers left out.
        origins: for each line of `text`, where it came from.
        includes: names of the user headers that were pulled in, in order of first entry.
    """

    text: str
    origins: tuple[Origin, ...]
    includes: tuple[str, ...]


def user_text(preprocessed: str, main: str) -> UserText:
    """Drop system headers from the output of `-E`, keeping the origin of every line that stays.

    Whether a file is a system header is decided where it is entered: GCC also flags single lines of a user's file as
    "system" when a macro from a system header was expanded on them, and those lines must stay. The CUDA toolkit's own
    headers count as system headers; a library does where its folder is given with `-isystem`.

    Args:
        preprocessed: output of `g++ -E`, `clang++ -E` or `nvcc -E`; text without markers is taken as `main` itself.
        main: name of the main file, whatever its copy was called that the preprocessor read.
    """
    lines: list[str] = []
    origins: list[Origin] = []
    includes: dict[str, None] = {}
    file, number, system = main, 1, False
    copy = ""  # the main file as the preprocessor names it, which begins with it
    toolkit = "\0"  # starts no path
    outer: list[bool] = []
    for line in preprocessed.split("\n"):
        marker = _MARKER.match(line)
        if marker is None:
            if not system:
                lines.append("" if line.lstrip().startswith("#") else line)
                origins.append(Origin(file, number))
            number += 1
            continue
        before = file
        number, file = int(marker[1]), _ESCAPE.sub(_unescape, marker[2])
        copy = copy or file
        file = main if file == copy else file
        flags = marker[3].split()
        if _ENTER in flags:
            outer.append(system)
            if before == _COMMAND_LINE and file.endswith(f"/{_TOOLKIT_HEADER}"):
                toolkit = file.removesuffix(_TOOLKIT_HEADER)
            system = _SYSTEM in flags or file.startswith(toolkit)
            if not system and not file.startswith("<"):
                includes[file] = None
        elif _LEAVE in flags and outer:
            system = outer.pop()
    return UserText("\n".join(lines), tuple(origins), tuple(name for name in includes if name != main))


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if len(code) == 3 else code
