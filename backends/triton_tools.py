"""The tools that come with Triton, and where else they are found: ptxas and nvdisasm."""

from __future__ import annotations

import functools
import os
from importlib import util
from pathlib import Path

from backends.host_compiler import find_tool
from backends.process import run_process
from backends.types import ToolchainError
from backends.walls import Walls

INSTALL = "pip install triton torch"
_DISASSEMBLE_LIMIT_S = 60.0
_LISTING_LIMIT_BYTES = 32 << 20


def own_tools() -> Path:
    """The folder of the tools in Triton's wheel."""
    spec = util.find_spec("triton")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return Path(folders[0] if folders else "/", "backends", "nvidia", "bin")


def find(name: str) -> Path | None:
    """Triton's own, else that of NVIDIA's Python packages, else the toolkit's."""
    own = own_tools()
    packages = sorted((own.parents[3] / "nvidia").glob(f"cu*/bin/{name}"), reverse=True)
    for program in (own / name, *packages):
        if os.access(program, os.X_OK):
            return program
    return find_tool(name)


@functools.lru_cache(maxsize=4)
def version(program: Path) -> str:
    """The last line of what it says of itself, where NVIDIA's tools have their build number."""
    done = run_process([str(program), "--version"], timeout_s=20.0)
    return (done.stdout.strip().splitlines() or [f"exit {done.returncode}"])[-1]


def disassembly(program: Path, cubin: Path) -> str | None:
    """What `nvdisasm` prints of a cubin; None where it fails, or prints more than 32 MiB: half would hide the rest.

    Raises:
        ToolchainError: it cannot be started.
    """
    try:
        done = run_process(
            [str(program), "--print-code", str(cubin)],
            timeout_s=_DISASSEMBLE_LIMIT_S,
            max_output_bytes=_LISTING_LIMIT_BYTES,
            walls=Walls(readable=(cubin,), tools=(program,)),
        )
    except OSError as error:
        raise ToolchainError(f"{program} cannot be run: {error.strerror or error}; {INSTALL}") from error
    return done.stdout if done.returncode == 0 and len(done.stdout) < _LISTING_LIMIT_BYTES else None
