"""Work on a real Ray cluster of two nodes, which are killed one after the other while they evaluate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import cluster
from tests.leftovers import still_running
from tests.loop.scenario import events_of, fenced, kernel, plan, replay_task, state_of

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[cluster.Cluster]:
    with cluster.running(2) as running:
        yield running


def harness_open(cache: Path) -> bool:
    """Whether the node with this cache evaluates."""
    return bool(list(cache.glob("roofclimb/harness/harness-*")))


def wait_for(process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    """Until it holds, while the process runs."""
    end = time.monotonic() + 300
    while not condition() and process.poll() is None:
        assert time.monotonic() < end, "no node ever evaluated"
        time.sleep(0.05)


def test_a_node_that_is_lost_costs_a_retry_and_the_run_ends_right(
    ray_cluster: cluster.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {
        "iter1-plan-0": plan(2, rows=2),
        "iter1-branch-b0-0": fenced(kernel(2)),
        "iter1-branch-b1-0": fenced(kernel(4)),
    }
    task = replay_task(tmp_path, answers, iterations=1, ablate=False)
    for name, value in cluster.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    where = f"executor={{kind: ray, address: '{ray_cluster.address}', resources: {{GPU: 1}}}}"
    command = [sys.executable, "-m", "agent", "run", "--json", "--config", str(task), "--set", where]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    doomed = ray_cluster.caches[1]
    wait_for(process, lambda: harness_open(doomed))
    ray_cluster.kill(1)
    result, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert json.loads(result)["status"] == "finished"  # and Ray said nothing there
    assert still_running(doomed) == []
    state = state_of(tmp_path)
    assert state.status == "finished"
    assert state.retries >= 1
    assert [e["task"].partition(" ")[0] for e in events_of(tmp_path, "task_retried")] == ["evaluation"] * state.retries
    evaluated = {e["key"]: e for e in events_of(tmp_path, "evaluated") if e["iteration"] == 1}
    for branch in ("b0", "b1"):
        assert evaluated[f"iter1/{branch}"]["outcome"]["verdict"] in ("pass", "suspect")
        assert evaluated[f"iter1/{branch}"]["elsewhere"]["scale"] > 0
    for decided in events_of(tmp_path, "champion_decided"):
        if decided["accepted"]:  # what was found elsewhere was found again at home
            assert evaluated[f"iter1/{decided['branch']}/home"]["elsewhere"] is None


def test_builds_go_by_content_and_with_the_last_node_gone_work_is_done_at_home(
    ray_cluster: cluster.Cluster, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.loop.ray_work", str(tmp_path), ray_cluster.address],
        env={**os.environ, **cluster.ENVIRONMENT},
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for(process, lambda: (tmp_path / "evaluating").exists() and any(map(harness_open, ray_cluster.caches)))
    ray_cluster.kill_all()
    said = process.communicate(timeout=300)[0]
    assert process.returncode == 0
    found = json.loads(said)
    key = found.pop("key")
    assert any((cache / "roofclimb" / "builds" / key / "kernel.so").is_file() for cache in ray_cluster.caches)
    assert found.pop("verdict") in ("pass", "suspect")
    assert found == {
        "from_the_cluster": True,
        "broken": "rejected",
        "troubles_before": 0,
        "at_home": True,
        "places": 1,
        "again": "built",
        "troubles": ["build", "evaluation"],
    }
