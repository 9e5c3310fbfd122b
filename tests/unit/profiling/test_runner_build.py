"""What a user loses: a compiler that builds the kernels but not what calls them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILD = """import sys
from pathlib import Path
from backends.types import Parameter, Signature
from profiling.harness.runner_build import build_native
parameter = Parameter("b", "float*", "float32", pointer=True, const=False)
native = build_native(Signature((parameter,)), Path(sys.argv[1]))
assert all(path.is_file() for path in (native.runner, native.empty, native.flush))
"""


def build(cache: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BUILD, str(cache)],
        env={"PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.skipif(shutil.which("g++", path="/usr/local/bin:/usr/bin:/bin") is None, reason="needs g++ in /usr/bin")
def test_cron_has_no_path(tmp_path: Path) -> None:
    done = build(tmp_path, {"PATH": ""})
    assert (done.returncode, done.stderr) == (0, "")
    assert all(len(folder.name) == 24 for folder in (tmp_path / "harness").iterdir())


def test_the_compiler_in_cxx_builds_them(tmp_path: Path) -> None:
    real = shutil.which("g++") or shutil.which("clang++")
    assert real is not None
    compiler = tmp_path / "mine"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexec {real} "$@"\n')
    compiler.chmod(0o755)
    done = build(tmp_path / "cache", {"CXX": str(compiler)})
    assert (done.returncode, done.stderr) == (0, "")
    assert "runner.cpp" in (tmp_path / "calls").read_text()
