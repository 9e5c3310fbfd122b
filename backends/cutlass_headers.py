"""Where CUTLASS's headers are."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from backends.types import ToolchainError

_VARIABLES = ("CUTLASS_PATH", "CUTLASS_INCLUDE_DIR", "CUTLASS_DIR", "CUTLASS_HOME")
_STANDARD = ("/usr/include", "/usr/local/include", "/opt/cutlass", "/usr/local/cutlass", "/usr/local/cuda/include")
# Searched anyway; named again, they would come too early for the C++ library's own headers.
_SEARCHED = {Path("/usr/include"), Path("/usr/local/include")}
_HOME = ("cutlass", "src/cutlass")
_MARK = "cutlass/version.h"
_VERSION = re.compile(r"^#define\s+CUTLASS_(MAJOR|MINOR|PATCH)\s+(\d+)", re.MULTILINE)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"](?:cutlass|cute)/', re.MULTILINE)
_INSTALL = (
    "pip install nvidia-cutlass, or clone https://github.com/NVIDIA/cutlass and point CUTLASS_PATH at its root "
    "(or CUTLASS_INCLUDE_DIR at its include folder)"
)


@dataclass(frozen=True, slots=True)
class CutlassHeaders:
    """CUTLASS as a compiler needs it: folders to search (absolute; the headers, then the utilities) and its version."""

    folders: tuple[Path, ...]
    version: str


def includes_cutlass(text: str) -> bool:
    """Whether a source includes a header of CUTLASS or CuTe."""
    return _INCLUDE.search(text) is not None


def find_cutlass() -> CutlassHeaders:
    """CUTLASS_PATH, CUTLASS_INCLUDE_DIR, the usual folders, then the package nvidia-cutlass.

    Raises:
        ToolchainError: nowhere, or not where a variable says. Says what to install.
    """
    for variable in _VARIABLES:
        given = os.environ.get(variable, "").strip()
        if given:
            found = _headers(Path(given))
            if found is None:
                raise ToolchainError(f"{variable} is `{given}`, but there is no include/{_MARK} in it; {_INSTALL}")
            return found
    for folder in _usual():
        found = _headers(folder)
        if found is not None:
            return found
    raise ToolchainError(f"CUTLASS's headers were not found; {_INSTALL}")


def _usual() -> Iterator[Path]:
    yield from map(Path, _STANDARD)
    home = os.environ.get("HOME")
    if home:
        yield from (Path(home) / name for name in _HOME)
    package = importlib.util.find_spec("cutlass_library")
    if package is not None and package.submodule_search_locations:
        yield from (Path(folder) / "source" for folder in package.submodule_search_locations)


def _headers(folder: Path) -> CutlassHeaders | None:
    """CUTLASS in `folder`, which is its root or its include folder."""
    for include in (folder / "include", folder):
        try:
            text = (include / _MARK).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        parts = dict(_VERSION.findall(text))
        version = ".".join(parts.get(name, "?") for name in ("MAJOR", "MINOR", "PATCH"))
        tools = include.absolute().parent / "tools" / "util" / "include"
        return CutlassHeaders(
            tuple(f for f in (include.absolute(), tools) if f.is_dir() and f not in _SEARCHED), version
        )
    return None
