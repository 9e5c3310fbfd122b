"""The oldest SDKs that `pyproject.toml` admits do what the newest do: the providers' own tests, run through them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[4]
STATED = ("anthropic", "openai", "httpx2")
# What the old ones need and the new ones do not; everything else they share.
ALSO = ("distro", "tqdm")
_UNREACHABLE = re.compile(r"connection|could not fetch|timed out|name resolution|no module named pip", re.I)


def oldest() -> list[str]:
    """`anthropic==1.0` and its like."""
    listed = re.findall(r'^    "([^"]+)",$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    found = [Requirement(line) for line in listed if re.match(rf"({'|'.join(STATED)})\b", line)]
    return [f"{r.name}=={next(s.version for s in r.specifier if s.operator == '>=')}" for r in found]


def test_the_oldest_sdks_pass_the_tests_of_the_newest(tmp_path: Path) -> None:
    wanted = oldest()
    assert [name.partition("==")[0] for name in wanted] == list(STATED)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--retries", "0", "--timeout", "10"]
    made = subprocess.run(
        [*pip, "--target", str(tmp_path), *wanted, *ALSO], capture_output=True, text=True, timeout=120, check=False
    )
    if made.returncode != 0 and _UNREACHABLE.search(made.stderr):
        pytest.skip(f"the package index cannot be reached: {made.stderr.strip().splitlines()[0]}")
    assert made.returncode == 0, made.stderr
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "tests/unit/agent/llm/test_remote_providers.py",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    where = "import anthropic, openai, httpx2; print(anthropic.__file__, openai.__file__, httpx2.__file__)"
    used = subprocess.run(
        [sys.executable, "-c", where], env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert used.stdout.count(str(tmp_path)) == 3
