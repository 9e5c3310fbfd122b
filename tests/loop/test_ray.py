"""A run on a real Ray cluster of two nodes, of which one is killed while it evaluates."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests import cluster
from tests.leftovers import still_running
from tests.loop.scenario import METHOD, events_of, fenced, kernel, plan, replay_task, roofclimb, start, state_of

pytest.importorskip("ray")


def overrides(address: str) -> list[str]:
    return ["--set", f"executor={{kind: ray, address: '{address}', resources: {{GPU: 1}}}}"]


def test_a_node_that_is_lost_costs_a_retry_and_the_run_ends_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {
        "iter1-plan-0": plan(2, rows=2),
        "iter1-branch-b0-0": fenced(kernel(2)),
        "iter1-branch-b1-0": fenced(kernel(4)),
    }
    task = replay_task(tmp_path, answers, iterations=1, ablate=False)
    for name, value in cluster.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with cluster.running(2) as ray:
        process = start(tmp_path, "run", "--config", str(task), *overrides(ray.address))
        doomed = ray.caches[1]
        end = time.monotonic() + 300
        while not list(doomed.glob("roofclimb/harness/harness-*")) and process.poll() is None:
            assert time.monotonic() < end, "the node never evaluated"
            time.sleep(0.05)
        ray.kill(1)
        said = process.communicate(timeout=300)[1]
        assert process.returncode == 0, said
        assert still_running(doomed) == []
    state = state_of(tmp_path)
    assert state.status == "finished"
    assert state.retries >= 1
    assert len(events_of(tmp_path, "task_retried")) == state.retries
    evaluated = {e["branch"]: e for e in events_of(tmp_path, "evaluated") if e["iteration"] == 1}
    assert {b.name: b.status for b in state.branches} == {"b0": "pass", "b1": "pass"}
    assert evaluated.keys() == {"b0", "b1"}
    assert all(e["outcome"]["verdict"] == "pass" for e in evaluated.values())
