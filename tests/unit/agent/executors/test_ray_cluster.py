"""Ray is an extra, and a cluster may be down: one line that says what to do, and soon."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONNECT = """
import sys
from agent.errors import UnfitEnvironment
from agent.executors.ray_cluster import connect
try:
    connect(sys.argv[1])
except UnfitEnvironment as error:
    print(error)
"""


def said(address: str, *path: str) -> str:
    search = os.pathsep.join((*path, os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, "-c", CONNECT, address],
        env={**os.environ, "PYTHONPATH": search, "RAY_ADDRESS": ""},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout.count("\n") == 1
    return done.stdout


def test_without_the_extra_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ModuleNotFoundError(\"No module named 'ray'\")\n")
    assert "pip install 'roofclimb[ray]'" in said("auto", str(tmp_path))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (
            "127.0.0.1:1",
            "no Ray cluster answers at 127.0.0.1:1 (Connection refused): start one with `ray start --",
        ),
        ("ray://127.0.0.1:10001", "run on a machine that is part of the cluster"),
    ],
)
def test_a_cluster_that_is_not_there_is_named(address: str, expected: str) -> None:
    pytest.importorskip("ray")
    assert expected in said(address)
