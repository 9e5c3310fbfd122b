"""A night as cron starts it: an empty environment, absolute paths, the root as working directory. And kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.nightly.summary import NightSummary
from tests.loop.scenario import one_line, plan, replay_task, roofclimb
from tests.nights import Sittings, as_cron_does, holding

NIGHT = """
tasks:
  - {{config: quickstart, set: ['task.dims={{M: 112, N: 96, K: 128}}', search.near_peak=0]}}
  - {{config: softmax_cpu, set: ['task.dims={{rows: 256, cols: 512}}', search.near_peak=0]}}
  - {{config: stencil_cpu, set: ['task.dims={{rows: 192, cols: 256}}', search.near_peak=0]}}
  - gemm                                # needs a GPU: where there is none it fails, and stops nobody
set:
  - search.iterations=1
  - search.branches=1
  - search.ablate=false
  - measure.sanitize=false
  - measure.min_time_s=0.02
  - measure.warmup_ms=5
  - memory.url=sqlite:///{folder}/memory.db
budget: {{usd: 1, hours: 2}}
output: {folder}/runs
on_finish: sh -c 'cat > {folder}/told.json'
"""


@pytest.mark.timeout(1200)
def test_a_night_of_shipped_tasks_from_an_empty_environment_killed_twice_ends_with_one_page(tmp_path: Path) -> None:
    file, runs = tmp_path / "night.yaml", tmp_path / "runs"
    file.write_text(NIGHT.format(folder=tmp_path))
    environment = {"XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"]}
    command = as_cron_does(environment, str(file))
    sittings = Sittings(runs, within_s=300)
    sittings.killed_when(command, lambda: bool(holding(runs, '"type":"surveyed"')))

    def second_kill() -> bool:
        if not holding(runs, '"type":"evaluated"', '"iteration":1'):
            return False
        refused = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
        assert refused.returncode == 3
        assert "a night is running there already" in one_line(refused.stderr)
        return True

    said = sittings.killed_when(command, second_kill)
    assert "was left unfinished: going on with it" in said
    done = sittings.to_its_end(as_cron_does(environment, "--resume", str(runs / "latest-night"), "--json"))
    told = NightSummary.model_validate_json((tmp_path / "told.json").read_text())
    shown = json.loads(done.stdout)
    assert [task["task"] for task in shown["tasks"]] == [task.task for task in told.tasks]
    outcome = {task.task: task.outcome for task in told.tasks}
    for task in ("gemm_fp32 (quickstart)", "softmax_fp32", "jacobi_fp32"):
        assert outcome[task] == "faster", done.stderr
    gpu = outcome["gemm_fp32 (gemm)"] != "failed"
    assert done.returncode == told.exit_code == (0 if gpu else 3)
    assert told.sessions == 3
    sittings.assert_nothing_lost_or_done_twice()
    (night,) = runs.glob("night_*")
    assert (runs / "latest-night").resolve() == night
    page = (night / "index.html").read_text()
    assert page.count("<article") == 4
    logs = sorted(runs.glob("run_*/events.jsonl"))
    assert len(logs) == (4 if gpu else 3)
    assert all(f'"../{log.parent.name}/report.html"' in page for log in logs)


def test_ctrl_c_finishes_the_step_and_the_same_command_goes_on(tmp_path: Path) -> None:
    config = replay_task(tmp_path, {"iter1-plan-0": plan(1)})
    command = [sys.executable, "-m", "agent", "nightly", str(config)]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    end = time.monotonic() + 120
    while not holding(tmp_path / "runs", '"type":"session_started"'):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "goes on" in one_line(said)
    assert holding(tmp_path / "runs", '"type":"paused"', '"status":"interrupted"')
    assert "interrupted" in (tmp_path / "runs" / "latest-night" / "index.md").read_text()


def test_a_night_of_which_no_task_can_be_read_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("task: {name: [\n")
    for names, said in (
        (["broken.yaml"], "broken.yaml"),
        (["gone.yaml"], "gone.yaml: cannot be read (No such file or directory); name"),
        ([], "no task"),
    ):
        done = roofclimb("nightly", *names, cwd=tmp_path)
        assert done.returncode == 2
        assert said in one_line(done.stderr)
    assert not (tmp_path / "runs").exists()


def test_resume_takes_a_nights_folder_and_nothing_beside(tmp_path: Path) -> None:
    done = roofclimb("nightly", "--resume", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 2
    assert "not a night's folder" in one_line(done.stderr)
    for beside in ("quickstart", "--usd=1", "--new"):
        done = roofclimb("nightly", beside, "--resume", str(tmp_path), cwd=tmp_path)
        assert done.returncode == 2
        assert "give it alone" in one_line(done.stderr)


def test_an_output_that_cannot_be_written_ends_with_3(tmp_path: Path) -> None:
    done = roofclimb("nightly", "quickstart", "--output", "/dev/null/runs", cwd=tmp_path)
    assert done.returncode == 3
    assert "/dev/null/runs" in one_line(done.stderr)
