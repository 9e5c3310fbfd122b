"""Readable names for mangled C++ symbols, as far as a demangler is installed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from backends.host_compiler import find_tool
from backends.process import run_process
from backends.walls import Walls

_MANGLED = re.compile(r"\b_Z[A-Za-z0-9_$.]+")
_DEMANGLERS = ("cu++filt", "c++filt", "llvm-cxxfilt")


def demangled(names: Iterable[str]) -> Mapping[str, str]:
    """Mangled name to readable name; what is not mangled, or cannot be read, is not in it."""
    mangled = [name for name in dict.fromkeys(names) if _MANGLED.fullmatch(name)]
    tool = next(filter(None, map(find_tool, _DEMANGLERS)), None)
    if tool is None or not mangled:
        return {}
    try:
        # A candidate chose the names.
        done = run_process([str(tool)], timeout_s=20.0, stdin="\n".join(mangled) + "\n", walls=Walls(tools=(tool,)))
    except OSError:
        return {}
    readable = done.stdout.splitlines()
    return dict(zip(mangled, readable, strict=True)) if len(readable) == len(mangled) else {}


def demangled_text(text: str) -> str:
    """`text` with every mangled name in it made readable."""
    names = demangled(_MANGLED.findall(text))
    return _MANGLED.sub(lambda match: names.get(match[0], match[0]), text) if names else text
