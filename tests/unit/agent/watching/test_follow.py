"""Who looks on reads a log that is being written, torn, cut or replaced, and never gets in the way of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.journal import Journal
from agent.watching.follow import Follower, held_files, is_held
from tests.unit.agent import event_log
from tests.writer import Writer, write_run


def lines() -> list[bytes]:
    return [event.model_dump_json().encode() + b"\n" for event in event_log.whole_run()]


def test_each_event_is_read_once_as_it_comes(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    log.write_bytes(b"".join(lines()[:3]))
    follower = Follower(log)
    assert [e.seq for e in follower.poll()] == [0, 1, 2]
    assert follower.poll() == []
    with log.open("ab") as file:
        file.write(b"".join(lines()[3:5]))
    assert [e.seq for e in follower.poll()] == [3, 4]


def test_a_line_that_is_still_being_written_waits_until_it_is_whole(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    first, second = lines()[:2]
    log.write_bytes(first + second[:40])
    follower = Follower(log)
    assert [e.seq for e in follower.poll()] == [0]
    assert follower.problem is None
    log.write_bytes(first + second)
    assert [e.seq for e in follower.poll()] == [1]


def test_a_torn_line_that_a_resume_cuts_off_is_forgotten(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run_1")
    log = folder / "events.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"type":"noted","se')
    follower = Follower(log)
    count = len(follower.poll())
    journal = Journal(folder)
    journal.close()
    assert log.read_bytes() == whole
    assert follower.poll() == []
    assert (follower.generation, follower.problem, count) == (0, None, len(whole.splitlines()))


@pytest.mark.parametrize("left", [0, 2])
def test_a_log_that_was_cut_is_read_from_its_start(tmp_path: Path, left: int) -> None:
    log = tmp_path / "events.jsonl"
    log.write_bytes(b"".join(lines()[:6]))
    follower = Follower(log)
    follower.poll()
    log.write_bytes(b"".join(lines()[:left]))
    assert [e.seq for e in follower.poll()] == list(range(left))
    assert follower.generation == 1


def test_damage_is_named_with_its_line_and_what_stands_before_it_counts(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    log.write_bytes(b"".join(lines()[:2]) + b"\x00\x00rubbish\n" + lines()[2])
    follower = Follower(log)
    assert [e.seq for e in follower.poll()] == [0, 1]
    assert follower.problem == "events.jsonl is damaged at line 3"


def test_events_of_another_version_are_left_out_and_counted(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    log.write_bytes(lines()[0] + b'{"type":"of_the_future","seq":1}\n' + lines()[2])
    follower = Follower(log)
    assert [e.seq for e in follower.poll()] == [0, 2]
    assert (follower.skipped, follower.problem) == (1, None)


def test_a_log_that_is_gone_is_a_problem_until_it_is_back(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    follower = Follower(log)
    assert follower.poll() == []
    assert follower.problem is not None
    assert "No such file" in follower.problem
    log.write_bytes(lines()[0])
    assert [e.seq for e in follower.poll()] == [0]
    assert follower.problem is None


def test_looking_whether_a_run_is_held_never_takes_its_lock(tmp_path: Path) -> None:
    if held_files() is None:
        pytest.skip("this kernel does not tell of locks")
    folder = tmp_path / "run_1"
    with Writer(folder) as writer:
        writer.append(3)
        assert is_held(folder / "events.jsonl", held_files())
    assert is_held(folder / "events.jsonl", held_files()) is False
    for _ in range(50):  # a run that starts meanwhile gets its log
        held_files()
        journal = Journal(folder)
        assert is_held(folder / "events.jsonl", held_files())
        journal.close()
