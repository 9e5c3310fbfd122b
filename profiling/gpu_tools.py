"""Where NVIDIA's command-line tools lie, and which versions they are."""

from __future__ import annotations

import functools
import os
import re
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from backends.host_compiler import search_path
from backends.process import run_process

GPU_TOOLS = ("nvcc", "cuobjdump", "nvdisasm", "ncu", "compute-sanitizer")
# nvcc: "Cuda compilation tools, release 13.0, V13.0.88"; ncu: "Version 2025.3.1.0 (build 36398880)".
_VERSION = re.compile(r"\bV(?:ersion )?(\d+(?:\.\d+)+)")


def find_gpu_tool(name: str) -> Path | None:
    """PATH first, then the toolkit that CUDA_HOME or CUDA_PATH names, the usual folders, and PyPI's toolkit."""
    for folder in (search_path(), *map(str, _folders())):
        program = shutil.which(name, path=folder)
        if program is not None:
            return Path(os.path.abspath(program))
    return None


@functools.cache
def tool_version(name: str) -> str | None:
    """The version of one of `GPU_TOOLS`, None where it is not installed or does not say."""
    program = find_gpu_tool(name)
    if program is None:
        return None
    try:
        done = run_process([str(program), "--version"], timeout_s=20.0, env={"LC_ALL": "C"})
    except OSError:
        return None
    match = _VERSION.search(done.stdout)
    return match.group(1) if match and done.returncode == 0 else None


def _folders() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin"
    yield Path("/usr/local/cuda/bin")
    # Nsight Compute installed by itself: the newest.
    yield from sorted(Path("/opt/nvidia/nsight-compute").glob("*"), reverse=True)
    yield from sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/cu*/bin"), reverse=True)
