"""`watch`: from another terminal, through kills and resumes, to the run's own exit code."""

from __future__ import annotations

import fcntl
import json
import re
import subprocess
import threading
from pathlib import Path

import pytest

from tests.terminal import Terminal, agent
from tests.writer import Writer, write_run

ROOT = Path(__file__).resolve().parents[4]


def watch(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(agent("watch", *arguments), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def begin(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        agent("watch", *arguments), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def lines_of(process: subprocess.Popen[str], until: str) -> list[str]:
    """Lines of stderr up to one that holds `until`."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line.rstrip("\n"))
        if until in line:
            return lines
    raise AssertionError(f"{until} never came: {lines}")


def test_a_run_that_has_ended_is_told_from_its_start(tmp_path: Path) -> None:
    write_run(tmp_path / "run_1")
    told = watch(str(tmp_path / "run_1"))
    assert told.returncode == 0
    assert told.stdout == (
        "run_1: finished (iterations), 3.98x [3.91, 4.05] over the baseline, best from iteration 1, b2\n"
    )
    lines = told.stderr.splitlines()
    assert lines[0] == "2026-11-30T01:00:00Z run_1 made_up_gemm cpp, replay some-model"
    assert lines[-1].endswith("finished (iterations)")


def test_json_is_the_state_and_nothing_else(tmp_path: Path) -> None:
    write_run(tmp_path / "run_1")
    state = json.loads(watch(str(tmp_path / "run_1"), "--json").stdout)
    assert (state["status"], state["best_ms"]) == ("finished", 200.0)


def test_a_running_run_is_followed_to_its_end(tmp_path: Path) -> None:
    with Writer(tmp_path / "run_1") as writer:
        writer.append_until("plan_decided")
        process = begin(str(tmp_path / "run_1"))
        assert any("plan: memory.cache_blocking" in line for line in lines_of(process, "plan:"))
        writer.append_until("champion_decided")
        lines_of(process, "b2 accepted")
        writer.end()
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "3.98x" in out


def test_a_killed_run_that_is_resumed_is_followed_on(tmp_path: Path) -> None:
    folder = tmp_path / "run_1"
    with Writer(folder) as writer:
        writer.append_until("plan_decided")
        process = begin(str(folder))
        lines_of(process, "plan:")
        writer.kill()
        lines_of(process, "its process is gone; waiting for a resume")
    with (folder / "events.jsonl").open("ab") as log:
        log.write(b'{"type":"noted","se')  # what a kill in the middle of a write leaves
    with Writer(folder) as writer:
        writer.append_until("session_started")
        lines = lines_of(process, "resumed on")
        writer.end()
        out, rest = process.communicate(timeout=30)
    assert process.returncode == 0
    assert (lines + rest.splitlines()).count("resumed on") <= 1
    assert not any("made_up_gemm" in line for line in lines), "it does not begin again"
    assert "3.98x" in out


@pytest.mark.parametrize(("status", "code"), [("interrupted", 130), ("waiting", 75), ("failed", 4), ("failed", 3)])
def test_a_run_that_stops_hands_on_its_exit_code(tmp_path: Path, status: str, code: int) -> None:
    folder = tmp_path / "run_1"
    with Writer(folder) as writer:
        writer.append_until("plan_decided")
        writer.pause(status, code)
    told = watch(str(folder), "--wait", "0")
    assert told.returncode == code
    assert told.stderr.splitlines()[-1] == (
        f"roofclimb: run_1 {status}: stopped by a signal; resume it with: python -m agent resume {folder}"
    )


def test_a_run_without_a_process_is_not_waited_for_longer_than_asked(tmp_path: Path) -> None:
    with Writer(tmp_path / "run_1") as writer:
        writer.append(5)
    told = watch(str(tmp_path / "run_1"), "--wait", "0.5")
    assert told.returncode == 130
    assert "no process works on it; resume it with" in told.stderr


def test_latest_and_the_folder_of_runs_lead_to_the_run_being_worked_on(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    with Writer(runs / "run_1") as writer:
        writer.append_until("plan_decided")
        write_run(runs / "run_2")  # newer, but over
        (runs / "latest").symlink_to("run_2")
        process = begin(str(runs))
        assert "run_1" in lines_of(process, "plan:")[0]
        writer.end()
        process.communicate(timeout=30)
    told = subprocess.run(
        agent("watch", "latest"), cwd=tmp_path, env=_env(), capture_output=True, text=True, check=False
    )
    assert told.stdout.startswith("run_2: finished")


def _env() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}


def test_a_night_is_followed_from_run_to_run_and_back(tmp_path: Path) -> None:
    night = tmp_path / "night_1"
    night.mkdir()
    (night / "night.jsonl").write_text('{"type":"night_started","at":"2026-11-30T01:00:00+00:00","names":["a","b"]}\n')
    with (tmp_path / ".nightly.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = begin(str(tmp_path))
        with Writer(tmp_path / "run_1") as survey:  # measured, and left for later
            survey.append_until("aa_measured")
            lines_of(process, "A/A spread")
        with Writer(tmp_path / "run_2") as second:
            second.append_until("aa_measured")
            assert "run_2" in lines_of(process, "run_2")[-1]
            second.end()
        lines_of(process, "finished (iterations)")
        with Writer(tmp_path / "run_1") as first:
            first.append_until("plan_decided")
            lines = lines_of(process, "plan:")
            assert any("back to run_1 made_up_gemm" in line for line in lines)
            assert not any("A/A spread" in line for line in lines), "what was told is not told again"
            first.end()
        lines_of(process, "finished (iterations)")
        with (night / "night.jsonl").open("a") as log:
            log.write('{"type":"night_ended","at":"2026-11-30T05:00:00+00:00","exit_code":4}\n')
    _, err = process.communicate(timeout=30)
    assert process.returncode == 4
    assert err.splitlines()[-1] == f"roofclimb: night_1 ended with exit code 4; see {night}/index.html"


def test_a_night_that_stops_is_no_success(tmp_path: Path) -> None:
    with (tmp_path / ".nightly.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = begin(str(tmp_path))
        with Writer(tmp_path / "run_1") as first:
            first.append_until("plan_decided")
            lines_of(process, "plan:")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "stopped before its end; the same command goes on with it" in err


@pytest.mark.parametrize(
    ("ends", "code", "said"),
    [
        ({"type": "night_ended", "at": "2026-11-30T05:00:00+00:00", "exit_code": 3}, 3, "ended with exit code 3; see"),
        ({"type": "night_paused", "exit_code": 75}, 75, "waits for an answer"),
        ({"type": "night_paused", "exit_code": 5}, 5, "stopped before its end"),
        ({"type": "tried", "task": 0, "exit_code": 75}, 130, "stopped before its end"),
        ({"type": "tried", "task": 0, "exit_code": 0}, 130, "stopped before its end"),
    ],
)
def test_a_nights_own_folder_tells_how_that_night_ended(
    tmp_path: Path, ends: dict[str, object], code: int, said: str
) -> None:
    for name, last in (("night_1", ends), ("night_2", {"type": "night_ended", "at": "2026-12-01T05:00:00+00:00"})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "night.jsonl").write_text(f'{{"type":"night_started"}}\n{json.dumps(last)}\n')
    (tmp_path / "latest-night").symlink_to("night_1")
    told = watch(str(tmp_path / "latest-night"))
    assert told.returncode == code
    (line,) = told.stderr.splitlines()
    assert line.startswith("roofclimb: night_1")
    assert said in line


@pytest.mark.parametrize(("place", "said"), [("nowhere", "no such folder"), (".", "holds no run")])
def test_what_is_no_run_is_one_line(tmp_path: Path, place: str, said: str) -> None:
    told = watch(str(tmp_path / place))
    assert told.returncode == 2
    (line,) = told.stderr.splitlines()
    assert said in line


def test_damage_is_one_line(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run_1")
    log = folder / "events.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:3]) + b"rubbish\n")
    told = watch(str(folder))
    assert told.returncode == 2
    assert told.stderr.splitlines()[-1] == f"roofclimb: {folder}: events.jsonl is damaged at line 4"


def test_on_a_terminal_it_is_the_live_view_and_ctrl_c_leaves_the_run_alone(tmp_path: Path) -> None:
    with Writer(tmp_path / "run_1") as writer:
        writer.append_until("plan_decided")
        with Terminal(agent("watch", str(tmp_path / "run_1")), ROOT) as terminal:
            terminal.until(lambda t: "Planned" in t.shown, "the plan")
            terminal.until(lambda t: "iteration 1 of 2" in t.shown.splitlines()[-1], "the totals")
            terminal.press_ctrl_c()
            assert terminal.wait() == 130
            assert (
                terminal.shown.splitlines()[-1] == "roofclimb: watched no longer; what was watched goes on without this"
            )
            assert not terminal.cursor_hidden
        writer.end()


def test_a_pause_and_its_end_show_on_the_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "run_1"
    with Writer(folder) as writer, Terminal(agent("watch", str(folder)), ROOT) as terminal:
        writer.append_until("plan_decided")
        terminal.until(lambda t: "Planned" in t.shown, "the plan")
        writer.pause("interrupted", 130)
        terminal.until(
            lambda t: re.search(r"‖ interrupted; waiting \d+ s for a resume", t.shown) is not None, "the pause"
        )
        with Writer(folder) as resumed:
            resumed.append_until("session_started")
            terminal.until(lambda t: "Resumed on Imaginary CPU" in t.shown and "‖" not in t.shown, "the resume")
            ending = threading.Timer(0.3, resumed.end)
            ending.start()
            assert terminal.wait() == 0
            ending.join()
        assert "Finished (iterations)" in terminal.scrolled
