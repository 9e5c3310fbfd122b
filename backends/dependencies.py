"""Which shared libraries a built kernel pulls in, or can."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from backends.types import ToolchainError

# The languages' own run-time: what a compiler links without being asked, or for OpenMP.
_RUNTIME = ("libc", "libm", "libstdc++", "libgcc_s", "libgomp", "libomp", "libpthread", "libdl", "librt", "ld-linux")

CUDA_RUNTIME = ("cudart", "cuda")
"""What every CUDA kernel may need: the run-time, and the driver that it stands on."""

# Functions that bring in a library, or find a function in one, at run time.
_LOADERS = frozenset({"dlopen", "dlmopen", "dlsym", "dlvsym", "__libc_dlopen_mode"})


def needed_libraries(artifact: Path) -> tuple[str, ...]:
    """The DT_NEEDED entries of a shared library.

    Raises:
        ToolchainError: the file is not a shared library.
    """
    try:
        with artifact.open("rb") as stream:
            sections = [s for s in ELFFile(stream).iter_sections() if isinstance(s, DynamicSection)]
            # Which attributes a tag has depends on its type, so it is not part of its class.
            return tuple(str(vars(tag)["needed"]) for s in sections for tag in s.iter_tags("DT_NEEDED"))
    except (OSError, ELFError) as error:
        raise ToolchainError(f"{artifact}: cannot be read as a shared library ({error})") from None


def loader_symbols(artifact: Path) -> tuple[str, ...]:
    """The functions of the dynamic loader that a shared library calls for by name, sorted.

    With them it can pull in libraries that its DT_NEEDED entries do not name.

    Raises:
        ToolchainError: the file is not a shared library.
    """
    try:
        with artifact.open("rb") as stream:
            tables = [s for s in ELFFile(stream).iter_sections("SHT_DYNSYM") if isinstance(s, SymbolTableSection)]
            undefined = {s.name for table in tables for s in table.iter_symbols() if s["st_shndx"] == "SHN_UNDEF"}
    except (OSError, ELFError) as error:
        raise ToolchainError(f"{artifact}: cannot be read as a shared library ({error})") from None
    return tuple(sorted(undefined & _LOADERS))


def is_runtime(name: str) -> bool:
    """Whether a library by file name (`libm.so.6`) is the languages' own run-time."""
    return _stem(name) in _RUNTIME


def foreign_libraries(artifact: Path, allowed: Sequence[str]) -> tuple[str, ...]:
    """Needed libraries that are neither the run-time's nor allowed by name (`cublas` allows `libcublas.so.13`)."""
    known = {*_RUNTIME, *(f"lib{name.removeprefix('lib')}" for name in allowed)}
    return tuple(n for n in needed_libraries(artifact) if _stem(n) not in known)


def library_refusal(artifact: Path, allowed: Sequence[str]) -> str | None:
    """Why a built library may not be loaded: one it needs that is not allowed, or calls that can bring one in."""
    foreign = foreign_libraries(artifact, allowed)
    if foreign:
        return f"needs {', '.join(foreign)}, which task.allow.libraries does not name"
    loaders = loader_symbols(artifact)
    if loaders:
        return f"calls {', '.join(loaders)}: libraries come from task.allow.libraries alone"
    return None


def _stem(name: str) -> str:
    return name.split(".so")[0].removesuffix("-x86-64").removesuffix("-aarch64")
