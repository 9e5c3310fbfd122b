"""A night of three shipped GPU tasks as cron starts it, killed twice: one page, nothing lost, nothing asked again.

`pytest -s tests/gpu/test_night.py` shows the timeline.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from agent.nightly.lock import only_night
from agent.nightly.summary import NightSummary
from agent.state import State
from backends.registry import get_backend
from backends.types import ToolchainError
from tests.nights import Sittings, as_cron_does, holding, logs_of

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(590)]

NIGHT = """
tasks:
  - {{config: gemm, set: ['task.dims={{M: 2048, N: 2048, K: 2048}}']}}
  - softmax_cutlass
  - layernorm_triton
set:
  - task.hidden_shapes=0
  - search.iterations=1
  - search.branches=2
  - search.ablate=false
  - search.near_peak=0
  - measure.sanitize=false
  - memory.url=sqlite:///{folder}/memory.db
budget: {{usd: 1, hours: 1}}
output: {folder}/runs
"""
MEASURED_BRANCH = ('"type":"evaluated"', '"iteration":1')


def test_three_shipped_gpu_tasks_killed_twice_end_with_one_page(tmp_path: Path) -> None:
    for backend in ("cuda", "cutlass", "triton"):
        try:
            get_backend(backend).toolchain()
        except ToolchainError as error:
            pytest.skip(str(error))
    file, runs, home = tmp_path / "night.yaml", tmp_path / "runs", tmp_path / "home"
    file.write_text(NIGHT.format(folder=tmp_path))
    home.mkdir()
    which = {name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in os.environ}
    command = as_cron_does({"PATH": "/usr/bin:/bin", "HOME": str(home), **which}, str(file), "--json")
    began, sittings = time.monotonic(), Sittings(runs, within_s=240)

    sittings.killed_when(command, lambda: bool(holding(runs, *MEASURED_BRANCH)))
    (first,) = holding(runs, *MEASURED_BRANCH)
    said = sittings.killed_when(command, lambda: bool(set(holding(runs, *MEASURED_BRANCH)) - {first}))
    assert "was left unfinished: going on with it" in said
    done = sittings.to_its_end(command)

    print(f"{time.monotonic() - began:7.1f} s  {done.stdout}")
    assert done.returncode == 0, done.stderr
    night = NightSummary.model_validate_json(done.stdout)
    assert (night.status, night.exit_code, night.sessions) == ("finished", 0, 3)
    assert sorted(task.task for task in night.tasks) == ["gemm_fp32", "layernorm_fp32", "softmax_fp32"]
    assert all(task.outcome in ("faster", "no gain") for task in night.tasks), done.stderr
    sittings.assert_nothing_lost_or_done_twice()

    (page,) = runs.glob("night_*/index.html")
    assert (runs / "latest-night").resolve() == page.parent
    assert page.read_text().count("<article") == 3
    logs = [log for log in logs_of(runs) if log.name == "events.jsonl"]
    assert len(logs) == 3
    for log in logs:
        assert f'"../{log.parent.name}/report.html"' in page.read_text()
        assert (log.parent / "report.html").is_file()
        assert State.model_validate_json((log.parent / "state.json").read_text()).status == "finished"
    ends = [e for e in map(json.loads, logs_of(runs)[page.parent / "night.jsonl"]) if e["type"] == "night_ended"]
    assert [e["exit_code"] for e in ends] == [0]
    with only_night(runs):  # the lock went with the processes that held it
        pass
