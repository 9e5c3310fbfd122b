"""Backends by name, imported when first asked for, and the backend that a source file belongs to."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from pathlib import Path

from backends.cutlass_headers import includes_cutlass
from backends.types import Backend, SourceError

BACKENDS: Mapping[str, str] = {
    "cpp": "backends.cpp:CppBackend",
    "cuda": "backends.cuda:CudaBackend",
    "cutlass": "backends.cutlass:CutlassBackend",
    "triton": "backends.triton:TritonBackend",
}
"""Literal name to import path (`module:class`) of every backend that can build."""

_BY_SUFFIX: Mapping[str, str] = {
    ".cpp": "cpp",
    ".cc": "cpp",
    ".cxx": "cpp",
    ".cu": "cuda",
    ".py": "triton",
}


def get_backend(name: str) -> Backend:
    """The backend called `name`.

    Raises:
        SourceError: no such backend; the message names the nearest.
    """
    if name in BACKENDS:
        module, _, attribute = BACKENDS[name].partition(":")
        backend: Backend = getattr(importlib.import_module(module), attribute)()
        return backend
    raise SourceError(f"unknown backend `{name}`{_nearest(name, tuple(BACKENDS))}; known: {', '.join(BACKENDS)}")


def detect(source: Path) -> str:
    """The name of the backend that `source` belongs to, by its suffix and, for `.cu`, by what it includes.

    Raises:
        SourceError: the suffix says nothing, or a `.cu` file cannot be read.
    """
    name = _BY_SUFFIX.get(source.suffix.lower())
    if name is None:
        given = f"suffix `{source.suffix}`" if source.suffix else "a name without a suffix"
        raise SourceError(
            f"{source.name}: no backend is known by {given}{_nearest(source.suffix.lower(), tuple(_BY_SUFFIX))}; "
            f"use one of {', '.join(_BY_SUFFIX)} or set task.backend"
        )
    if name != "cuda":
        return name
    try:
        text = source.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SourceError(f"{source}: {error.strerror or error}; give a readable kernel file") from error
    return "cutlass" if includes_cutlass(text) else "cuda"


def _nearest(given: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    return f" (nearest: `{near[0]}`)" if near else ""
