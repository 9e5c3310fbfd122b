"""Stand-in driver libraries for tests on machines without a GPU, and a child process that loads them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "data" / "gpu_driver"
H200 = "GPU-11111111-2222-3333-4444-555555555555"
RUBBISH = "GPU-33333333-2222-3333-4444-555555555555"
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to build the stand-in driver")


def build_driver(folder: Path, *macros: str) -> Path:
    """A folder with both libraries, built with `macros` such as `INIT=9`."""
    for source, library in (("nvml.cpp", "libnvidia-ml.so.1"), ("cuda.cpp", "libcuda.so.1")):
        defines = [f"-D{macro}" for macro in macros]
        subprocess.run(
            ["g++", "-shared", "-fPIC", *defines, str(SOURCES / source), "-o", str(folder / library)], check=True
        )
    return folder


def run_with_driver(driver: Path | None, code: str, **environment: str) -> str:
    """What `code` prints in a Python of its own that loads the libraries in `driver`; a ToolchainError's text alone."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA", "NVIDIA"))} | environment
    if driver is not None:
        env["LD_LIBRARY_PATH"] = str(driver)
    body = "".join(f"    {line}\n" for line in code.splitlines())
    wrapped = f"""
from backends.types import ToolchainError
try:
{body}
except ToolchainError as error:
    print("ToolchainError:", error)
"""
    done = subprocess.run([sys.executable, "-c", wrapped], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
