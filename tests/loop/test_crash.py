"""Whatever happens to a run: nothing measured is lost, nothing answered is asked again, nothing begins anew unsaid."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.config import load_config
from agent.run_checks import check_run
from agent.run_folder import copy_inputs
from tests.loop.elsewhere import OTHER
from tests.loop.scenario import METHOD, fenced, kernel, one_line, plan, replay_task, roofclimb, start, wait_for

ANSWERS = {
    "iter1-plan-0": plan(2),
    "iter1-branch-b0-0": fenced(kernel(1)),
    "iter1-branch-b1-0": fenced(kernel(4)),
}
MEASURED = (
    "shapes_drawn",
    "ceilings_measured",
    "task_checked",
    "exploits_played",
    "aa_measured",
    "evaluated",
    "profiled",
    "compared",
    "sanitized",
    "attributed",
    "remembered",
)
ROOT = Path(__file__).parents[2]


def begun(folder: Path, *overrides: str) -> Path:
    """A run of the scenario before its first session; the run folder."""
    placed = (f"output={folder}/runs", f"memory.url=sqlite:///{folder}/memory.db")
    config = load_config(replay_task(folder, ANSWERS), (*placed, *overrides))
    run = folder / "runs" / "run_1"
    run.mkdir(parents=True)
    (folder / "runs" / "latest").symlink_to("run_1")
    copy_inputs(config, check_run(config), run)
    return run


def log_of(run: Path) -> Sequence[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def module(name: str, run: Path) -> subprocess.CompletedProcess[str]:
    """One of the test's own programs, on a run."""
    return subprocess.run(
        [sys.executable, "-m", f"tests.loop.{name}", str(run)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )


def assert_nothing_twice(log: Sequence[dict[str, Any]]) -> None:
    assert [e["seq"] for e in log] == list(range(len(log)))
    twice = [k for k, n in Counter((e["type"], e["key"]) for e in log if e["type"] in MEASURED).items() if n > 1]
    assert twice == []
    assert Counter(e["key"] for e in log if e["type"] == "reply_received") == dict.fromkeys(ANSWERS, 1)


@pytest.mark.timeout(1200)
def test_a_run_killed_at_every_event_twice_in_a_row_ends_in_the_same_place(tmp_path: Path) -> None:
    run = begun(tmp_path)
    done = module("chain", run)
    told = json.loads(done.stdout)
    assert told["exit"] == 0, done.stderr
    log = log_of(run)
    assert_nothing_twice(log)
    # Events that one write put there have one kill between them; run_started and shapes_drawn come before any listener.
    assert told["kills"] > 1.6 * len({(e["type"], e["key"]) for e in log if e["type"] != "session_started"})
    state = json.loads((run / "state.json").read_text())
    assert state["status"] == "finished"
    assert state["speedup"] > 1.5
    assert [m["method"] for m in state["effective_methods"]] == [METHOD]
    sent = [e for e in log if e["type"] == "request_sent"]
    assert len(ANSWERS) < len(sent) <= 3 * len(ANSWERS)
    assert state["cost"]["calls"] == len(sent)
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["latest", "run_1"]
    url = f"sqlite:///{tmp_path}/memory.db"
    stored = json.loads(roofclimb("memory", "list", "--url", url, "--json", cwd=tmp_path).stdout)
    assert len(stored["records"]) == 1


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run killed in the middle: its branches are measured, its champion is not decided."""
    folder = tmp_path_factory.mktemp("killed")
    begun(folder, "search.ablate=false", "measure.sanitize=false")
    process = start(folder, "resume", "runs/run_1")
    wait_for(folder, "compared", process)
    process.kill()
    process.wait()
    return folder


@pytest.fixture
def run(killed: Path, tmp_path: Path) -> Path:
    """A copy of that run."""
    shutil.copytree(killed, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy" / "runs" / "run_1"


@pytest.mark.parametrize("share", [0, 0.5])
def test_a_state_that_was_cut_costs_nothing(run: Path, share: float) -> None:
    state = run / "state.json"
    whole = state.read_bytes()
    state.write_bytes(whole[: int(len(whole) * share)])
    done = roofclimb("report", str(run), "--json", cwd=run)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"]["baseline_ms"] is not None


def test_a_cut_state_half_a_line_and_a_clock_set_back_lose_nothing(run: Path) -> None:
    """What was logged in what is now the future, by a machine whose clock was wrong, is what happened all the same."""
    before = log_of(run)
    (run / "state.json").write_bytes(b"")
    log = run / "events.jsonl"
    future = "".join(json.dumps({**e, "at": e["at"].replace("20", "21", 1)}) + "\n" for e in before)
    log.write_text(future + '{"seq":99,"at":"2126-01-01T00:00')
    done = roofclimb("resume", str(run), "--json", cwd=run)
    assert done.returncode == 0, done.stderr
    after = log_of(run)
    assert [(e["type"], e["key"]) for e in after[: len(before)]] == [(e["type"], e["key"]) for e in before]
    assert_nothing_twice(after)
    elapsed = [e["elapsed_s"] for e in after]
    assert elapsed == sorted(elapsed)
    assert elapsed[-1] < 3600
    assert json.loads(done.stdout)["status"] == "finished"


def test_on_another_device_what_counts_is_measured_anew_and_no_answer_is_asked_for_again(run: Path) -> None:
    before = log_of(run)
    done = module("elsewhere", run)
    assert done.returncode == 0, done.stderr
    log = log_of(run)
    assert_nothing_twice(log)
    anew = log[len(before) :]
    assert [e["device_id"] for e in anew if e["type"] == "session_started"] == [OTHER]
    keys = {e["key"] for e in anew if e["type"] in MEASURED}
    assert {"ceilings@1", "task@1", "exploits@1", "baseline@1", "aa@1", "final@1"} <= keys
    assert {"iter1/b0@1", "iter1/b1@1", "iter1/champion@1"} <= keys
    assert [e for e in anew if e["type"] in ("request_sent", "reply_received", "plan_decided")] == []
    state = json.loads((run / "state.json").read_text())
    (final,) = (e["outcome"] for e in anew if e["type"] == "compared" and e["key"] == "final@1")
    assert state["speedup"] == final["speedup"]
    assert "went on on another device" in (run / "summary.md").read_text()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or os.system(f"mount -t tmpfs -o size=1m tmpfs {disk} 2>/dev/null") != 0:
        pytest.skip("mounting a small file system needs root")
    yield disk
    os.system(f"umount {disk}")


def test_a_disk_that_fills_up_ends_the_run_with_3_and_loses_nothing(run: Path, small_disk: Path) -> None:
    moved = small_disk / "run_1"
    shutil.copytree(run, moved)
    before = log_of(moved)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"0" * 512)
        except OSError:
            pass
    full = roofclimb("resume", str(moved), cwd=run)
    assert full.returncode == 3, full.stderr
    assert "space" in one_line(full.stderr)
    kept = log_of(moved)
    assert [(e["type"], e["key"]) for e in kept[: len(before)]] == [(e["type"], e["key"]) for e in before]
    filler.unlink()
    done = roofclimb("resume", str(moved), cwd=run)
    assert done.returncode == 0, done.stderr
    assert_nothing_twice(log_of(moved))
