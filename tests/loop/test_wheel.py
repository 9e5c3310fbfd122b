"""The wheel alone, away from the checkout: templates, native sources, signatures, tasks and answers must be inside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds nothing but the unpacked wheel."""
    wheels, site = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = wheels.glob("roofclimb-*.whl")
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--target",
        str(site),
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)
    return site


def call(installed: Path, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "agent", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_installed_package_is_the_one_that_runs(installed: Path, tmp_path: Path) -> None:
    script = "import agent.cli, sys; print(agent.cli.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(installed))


def test_a_shipped_task_runs_from_another_directory(installed: Path, tmp_path: Path) -> None:
    fast = ["--set", "task.dims={rows: 64, cols: 512}", "--set", "search.iterations=1", "--set", "search.ablate=false"]
    state = json.loads(call(installed, tmp_path, "run", "--config", "softmax_cpu", "--json", *fast))
    assert state["status"] == "finished"
    assert state["branches"]
    assert (tmp_path / "runs" / "latest" / "report.html").is_file()
