"""Command lines of the native runner, which puts a candidate behind walls, and what those walls hide from it."""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

# Libraries that would do a kernel's work for it. Folders of Python packages are hidden whole.
_LIBRARIES = tuple(
    f"lib{name}*.so*"
    for name in ("openblas", "scipy_openblas", "blas", "cblas", "blis", "lapack", "atlas", "mkl_", "dnnl", "torch")
)
_LIBRARY_FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/lib/*-linux-gnu", "/usr/lib/*-linux-gnu/*", "/usr/local/lib")
_VENDORS = ("/opt/intel", "/opt/OpenBLAS", "/opt/arm", "/opt/AMD")


def serve_command(runner: Path, inherited: Sequence[int]) -> list[str]:
    """A worker that is asked for calls. `inherited` are its channel, arena, artifact and status descriptors."""
    return [str(runner), "--serve", *map(str, inherited), *_hidden()]


def wait_command(runner: Path, control: int, status: int, gpu: str) -> list[str]:
    """A worker that opens the GPU, and waits on `control` for its channel, arena and artifact."""
    return [str(runner), "--serve-later", str(control), str(status), gpu, *_hidden()]


def solo_command(runner: Path, bundle: Path, artifact: Path) -> list[str]:
    """One call on the data in `bundle`, behind the same walls."""
    return [str(runner), "--solo", str(bundle), str(artifact), *_hidden()]


def under_tool(command: Sequence[str], folder: Path, tool: Sequence[str]) -> list[str]:
    """`command` run by a tool that shares its process, such as valgrind, and writes to its working folder.

    For a `solo_command` the tool too is behind the walls: `folder` becomes its working folder, under another name, the
    only place outside its private ones where it may write, and its user's. Any other command runs as it is.
    """
    if command[1:2] == ["--solo"]:
        return [*command, "--", str(folder), *tool]
    return [*tool, *command]


@functools.cache
def _hidden() -> tuple[str, ...]:
    """This Python's packages and the machine's mathematics libraries, links resolved, those that are there."""
    packages = {Path(folder) for folder in (*site.getsitepackages(), site.getusersitepackages())}
    for scheme in ({}, {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}):
        packages |= {Path(sysconfig.get_path(name, vars=scheme)) for name in ("purelib", "platlib")}
    packages |= {Path("/usr/lib/python3/dist-packages"), *map(Path, _VENDORS)}
    folders = {Path(sys.prefix, "lib"), Path(sys.base_prefix, "lib")}
    folders |= {Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p}
    folders |= {found for pattern in _LIBRARY_FOLDERS for found in Path("/").glob(pattern[1:])}
    libraries = {found for folder in folders for pattern in _LIBRARIES for found in folder.glob(pattern)}
    hidden = {str(p.resolve()) for p in packages if p.is_dir()} | {str(p.resolve()) for p in libraries if p.is_file()}
    return tuple(sorted(hidden))
