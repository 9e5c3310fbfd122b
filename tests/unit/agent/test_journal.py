"""The log is what a killed run comes back from: nothing in it may be lost, doubled or misread."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ConfigError
from agent.events import AaMeasured, Noted, RequestSent
from agent.journal import Journal, read_events
from agent.state_fold import fold


def test_a_step_is_done_once_and_its_result_survives_the_process(tmp_path: Path) -> None:
    done: list[int] = []

    def measure() -> AaMeasured:
        done.append(1)
        return AaMeasured(key="aa", spread=0.01, median_ms=1.0)

    for _ in range(2):
        journal = Journal(tmp_path)
        assert journal.once(AaMeasured, "aa", measure).spread == 0.01
        journal.close()
    assert done == [1]


def test_a_torn_last_line_is_dropped_and_written_over(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(Noted(key="a", text="whole"))
    journal.close()
    path = tmp_path / "events.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"type":"noted","key":"b","te')
    journal = Journal(tmp_path)
    assert [e.key for e in journal.events] == ["a"]
    journal.append(Noted(key="c", text="next"))
    journal.close()
    assert [(e.seq, e.key) for e in read_events(path)[0]] == [(0, "a"), (1, "c")]


def test_what_was_found_at_once_is_logged_in_one_write_and_each_listener_hears_of_it_once_it_is_all_there(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path)
    heard: list[tuple[str, int]] = []
    path = tmp_path / "events.jsonl"
    journal.listen(lambda event: heard.append((event.key, len(path.read_bytes().splitlines()))))
    journal.append_all([Noted(key="a", text=""), Noted(key="b", text="")])
    journal.close()
    assert heard == [("a", 2), ("b", 2)]
    assert [(e.seq, e.key) for e in read_events(path)[0]] == [(0, "a"), (1, "b")]


def test_damage_before_the_last_line_is_refused_and_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"type":"noted","key":"a"}\n{"type":"noted","key":"b","text":"x"}\n')
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="line 1 is damaged"):
        Journal(tmp_path)
    assert path.read_bytes() == before


def test_a_second_process_on_the_same_run_is_turned_away(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(ConfigError, match="another process"):
        Journal(tmp_path)
    journal.close()
    Journal(tmp_path).close()


def test_elapsed_time_leaves_out_the_pause_between_sessions(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    first = journal.append(Noted(key="a", text=""))
    journal.close()
    journal = Journal(tmp_path)
    assert first.elapsed_s <= journal.elapsed_s < first.elapsed_s + 5
    journal.close()


def test_a_request_lost_in_flight_is_charged_at_its_most(tmp_path: Path) -> None:
    from agent.events import SessionStarted
    from profiling.counters import counter_source
    from profiling.environment import inspect_environment

    sent = RequestSent(
        key="iter1-plan-0", iteration=1, purpose="plan", prompt_sha256="0", worst_usd=0.25, worst_tokens=4000
    )
    environment = inspect_environment({}, counter_source(), {})
    again = SessionStarted(key="1", device_id="d", environment=environment)
    cost = fold([sent, again]).cost
    assert (cost.usd, cost.calls) == (0.25, 1)
    assert fold([sent]).cost.usd == 0
