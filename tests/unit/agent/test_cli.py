"""What is typed wrong comes back as one line, exit code 2, and where help is; nothing typed shows the help."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from agent import events as ev
from agent.cli import main
from agent.inspection import finished
from agent.state_fold import fold
from tests.unit.agent import event_log


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("foo", "No such command 'foo'; see roofclimb --help"),
        ("--foo", "No such option '--foo'"),
        ("run", "Missing option '--config'; see roofclimb run --help"),
        ("run --config=gemm --dryrun", "--dry-run"),
        ("roofline --time-ms 0", "0.0 is not in the range x>0"),
        ("memory foo", "see roofclimb memory --help"),
        ("memory show x", "'x' is not a valid integer; see roofclimb memory show --help"),
        ("bench a.cpp --config gemm", "with --config the kernel is given as --kernel a.cpp"),
        ("sass a.cu --config gemm", "with --config the kernel is given as --kernel a.cu"),
        ("inspect .", ".: is a folder; name a file"),
    ],
)
def test_what_cannot_be_understood_is_one_line(typed: str, said: str) -> None:
    done = CliRunner().invoke(main, typed.split(), prog_name="roofclimb")
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.startswith("roofclimb: ")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize("command", ["resume", "report", "verify"])
def test_a_night_where_a_run_is_meant_is_told_how_to_go_on(tmp_path: Path, command: str) -> None:
    (tmp_path / "night.jsonl").write_text("{}\n")
    done = CliRunner().invoke(main, [command, str(tmp_path)])
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"go on with all of it: python -m agent nightly --resume {tmp_path}")


@pytest.mark.parametrize("typed", ["", "memory"])
def test_without_a_command_there_is_help(typed: str) -> None:
    done = CliRunner().invoke(main, typed.split())
    assert done.exit_code == 2
    assert "Commands:" in done.stderr


def test_a_run_that_can_claim_nothing_says_why_where_the_speedup_would_stand(tmp_path: Path) -> None:
    events = [e for e in event_log.whole_run() if e.key != "final"]
    failed = {"kind": "rejected", "stage": "time", "reason": "clocks disagree", "evidence": ""}
    final = next(e for e in event_log.whole_run() if isinstance(e, ev.Compared) and e.key == "final")
    events.insert(-1, ev.EVENT.validate_python({**final.model_dump(mode="json"), "outcome": failed}))
    (tmp_path / "events.jsonl").write_text("".join(f"{e.model_dump_json()}\n" for e in events), encoding="utf-8")
    _, line = finished(fold(events), tmp_path)
    assert line.endswith("No claim: the final comparison failed (clocks disagree).")
