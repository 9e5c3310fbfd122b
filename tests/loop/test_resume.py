"""A run that is killed, interrupted or waiting goes on where it stopped: nothing is measured or asked twice."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from profiling.exclusive import exclusive_timing
from tests.loop.scenario import (
    events_of,
    fenced,
    kernel,
    plan,
    replay_task,
    roofclimb,
    start,
    state_of,
    wait_for,
    write_task,
)

ANSWERS = {
    "iter1-plan-0": plan(2),
    "iter1-branch-b0-0": fenced(kernel(1)),
    "iter1-branch-b1-0": fenced(kernel(4)),
}


def test_nothing_is_left_running_after_a_kill(tmp_path: Path) -> None:
    process = start(tmp_path, "run", "--config", str(replay_task(tmp_path, ANSWERS)))
    wait_for(tmp_path, "task_checked", process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert children
    process.kill()
    process.wait()
    end = time.monotonic() + 10
    while time.monotonic() < end and any(_alive(int(pid)) for pid in children):
        time.sleep(0.05)
    assert [pid for pid in children if _alive(int(pid))] == []


def _alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_ctrl_c_finishes_the_step_saves_and_can_be_resumed(tmp_path: Path) -> None:
    process = start(tmp_path, "run", "--config", str(replay_task(tmp_path, ANSWERS)))
    wait_for(tmp_path, "aa_measured", process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert state_of(tmp_path).status == "interrupted"
    assert (tmp_path / "runs" / "latest" / "summary.md").is_file()
    assert roofclimb("resume", "runs/latest", cwd=tmp_path).returncode == 0
    assert state_of(tmp_path).status == "finished"


def test_a_second_process_cannot_take_a_run_that_is_being_worked_on(tmp_path: Path) -> None:
    process = start(tmp_path, "run", "--config", str(replay_task(tmp_path, ANSWERS)))
    wait_for(tmp_path, "task_checked", process)
    second = roofclimb("resume", "runs/latest", cwd=tmp_path)
    process.kill()
    process.wait()
    assert second.returncode == 2
    assert "another process" in second.stderr


def test_a_moved_run_folder_resumes(tmp_path: Path) -> None:
    process = start(tmp_path, "run", "--config", str(replay_task(tmp_path, ANSWERS)))
    wait_for(tmp_path, "evaluated iter1/b0", process)
    process.kill()
    process.wait()
    moved = tmp_path / "elsewhere" / "a run"
    moved.parent.mkdir()
    os.rename((tmp_path / "runs" / "latest").resolve(), moved)
    (tmp_path / "kernel.cpp").unlink()
    (tmp_path / "reference.py").unlink()
    done = roofclimb("resume", str(moved), "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "finished"


def test_the_file_provider_waits_with_75_and_takes_the_answers_when_they_are_there(tmp_path: Path) -> None:
    config = write_task(tmp_path, {"provider": "file", "answers": "asked", "model": "a person"}, branches=2)
    first = roofclimb("run", "--config", str(config), "--set", "search.ablate=false", cwd=tmp_path)
    assert first.returncode == 75
    assert "iter1-plan-0.answer.md" in first.stderr
    assert state_of(tmp_path).status == "waiting"
    prompt = (tmp_path / "asked" / "iter1-plan-0.prompt.md").read_text()
    metric, value = _first_metric(prompt)
    answer = plan(2).replace('"l1_miss_rate", "value": 0.5', f'"{metric}", "value": {value}')
    (tmp_path / "asked" / "iter1-plan-0.answer.md").write_text(answer)
    assert roofclimb("resume", "runs/latest", cwd=tmp_path).returncode == 75
    assert sorted(p.name for p in (tmp_path / "asked").glob("*branch*.prompt.md")) == [
        "iter1-branch-b0-0.prompt.md",
        "iter1-branch-b1-0.prompt.md",
    ]
    for i in range(2):
        (tmp_path / "asked" / f"iter1-branch-b{i}-0.answer.md").write_text(fenced(kernel(2 * i + 1)))
    assert roofclimb("resume", "runs/latest", cwd=tmp_path).returncode == 0
    assert state_of(tmp_path).status == "finished"
    assert len(events_of(tmp_path, "evaluated")) == 3


def _first_metric(prompt: str) -> tuple[str, str]:
    rows = [line.split("|") for line in prompt.splitlines() if line.startswith(("| compute", "| memory", "| latency"))]
    return rows[0][2].strip(), rows[0][3].strip()


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    done = roofclimb("run", "--config", str(replay_task(tmp_path, ANSWERS, ablate=False)), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    log = tmp_path / "runs" / "latest" / "events.jsonl"
    before = log.read_bytes()
    again = roofclimb("resume", "runs/latest", cwd=tmp_path)
    assert again.returncode == 0
    assert log.read_bytes() == before


def test_a_folder_that_is_no_run_and_a_damaged_log_are_refused(tmp_path: Path) -> None:
    assert roofclimb("resume", str(tmp_path), cwd=tmp_path).returncode == 2
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(write_task(tmp_path, {"provider": "replay"}).read_text())
    (tmp_path / "answers").mkdir()
    (run / "kernel.cpp").write_text((tmp_path / "kernel.cpp").read_text())
    (run / "reference.py").write_text((tmp_path / "reference.py").read_text())
    (run / "events.jsonl").write_text("half a li\n")
    damaged = roofclimb("resume", str(run), cwd=tmp_path)
    assert damaged.returncode == 2
    assert "damaged" in damaged.stderr
    assert (run / "events.jsonl").read_text() == "half a li\n"


def test_ctrl_c_ends_the_wait_for_another_runs_timing(tmp_path: Path) -> None:
    config = replay_task(tmp_path, ANSWERS)
    with exclusive_timing():
        process = start(tmp_path, "run", "--config", str(config))
        log = tmp_path / "runs" / "latest" / "events.jsonl"
        end = time.monotonic() + 60
        while time.monotonic() < end and not (log.exists() and "ceilings_measured" in log.read_text()):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "waiting for another run" in said
