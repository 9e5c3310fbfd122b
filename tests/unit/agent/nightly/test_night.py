"""Order, budget and failures of a night. Its processes are played; what they leave in run folders is whole."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent import events as run_events
from agent.errors import UnfitEnvironment
from agent.events import Event
from agent.log import Log
from agent.nightly import events as ev
from agent.nightly.asked import Asked, Job, NightBudget
from agent.nightly.child import Order
from agent.nightly.events import NIGHT_EVENT
from agent.nightly.night import Night, names_of
from agent.nightly.page import as_text
from agent.nightly.process import Ended
from agent.nightly.summary import NightSummary, exit_code
from agent.nightly.survey import by_expected_gain, expected_gain
from tests.unit.agent import event_log
from tests.unit.agent.test_report import Page

GAINS: Mapping[str, float | None] = {"a": 0.5, "b": 2.0, "c": None}


@dataclass
class Player:
    """A child that measures nothing. `fails`: the exit codes of a task's tries, survey first, until it succeeds."""

    fails: dict[str, list[int]] = field(default_factory=dict)
    usd: float = 0.0
    reason: str = "broke <b>"
    stop_at: tuple[str, threading.Event] | None = None
    done: list[str] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)

    def __call__(self, order: Order, stopped: Callable[[], bool]) -> Ended:
        name = order.job.config.stem
        self.orders.append(order)
        assert (order.folder.parent / "latest").resolve() == order.folder  # what `watch` and people look at
        self.done.append(f"{name}?" if order.survey else name)
        codes = self.fails.get(name, [])
        if codes:
            return Ended(codes.pop(0), f"{name} {self.reason}", {})
        if self.stop_at is not None and self.stop_at[0] == self.done[-1]:
            self.stop_at[1].set()
            return Ended(130, "stopped by a signal", {})
        if order.survey:
            return Ended(0, "", {"gap": 0.5, "odds": 0.5, "expected": GAINS[name]})
        self._finish(order.folder)
        return Ended(0, "", {})

    def _finish(self, folder: Path) -> None:
        sent = run_events.RequestSent(
            key="x", iteration=9, purpose="plan", prompt_sha256="", worst_usd=self.usd, worst_tokens=1
        )
        again = run_events.SessionStarted(key="9", device_id=event_log.DEVICE.id, environment=event_log.ENVIRONMENT)
        log: Sequence[Event] = [*event_log.whole_run()[:-1], sent, again, event_log.whole_run()[-1]]
        (folder / "config.yaml").write_text("{}")
        lines = [event.model_dump_json() for event in event_log.stamped(log)]
        (folder / "events.jsonl").write_text("\n".join(lines) + "\n")
        (folder / "report.html").write_text("")


def begin(folder: Path, names: str = "abc", budget: NightBudget | None = None, on_finish: str | None = None) -> Path:
    """A night's folder as the command makes it."""
    night = folder / "runs" / "night_1"
    night.mkdir(parents=True)
    jobs = tuple(Job(config=folder / f"{name}.yaml") for name in names)
    asked = Asked(jobs=jobs, budget=budget or NightBudget(), output=folder / "runs", on_finish=on_finish)
    started = ev.NightStarted(
        key="night", night_id="night_1", version="0", asked=asked, fingerprint="f", names=tuple(names)
    )
    log = Log(night / "night.jsonl", NIGHT_EVENT, "night")
    log.append(started)
    log.close()
    return night


def play(
    night: Path, player: Player, stopped: threading.Event | None = None, said: list[str] | None = None
) -> NightSummary:
    log, lines = Log(night / "night.jsonl", NIGHT_EVENT, "night"), [] if said is None else said
    try:
        return Night(night, log, stopped or threading.Event(), lines.append, player).work()
    finally:
        log.close()


def outcomes(summary: NightSummary) -> dict[str, str]:
    return {task.task: task.outcome for task in summary.tasks}


def test_all_are_measured_first_and_the_most_hopeful_goes_first(tmp_path: Path) -> None:
    player = Player()
    summary = play(begin(tmp_path), player)
    assert player.done == ["a?", "b?", "c?", "b", "a", "c"]
    assert list(outcomes(summary)) == ["b", "a", "c"]
    assert (summary.status, summary.exit_code) == ("finished", 0)


def test_a_night_of_one_task_has_no_order_to_find(tmp_path: Path) -> None:
    player = Player()
    play(begin(tmp_path, "a"), player)
    assert player.done == ["a"]


def test_one_that_fails_stops_no_other_and_is_tried_once_more_after_them(tmp_path: Path) -> None:
    player = Player(fails={"b": [-11], "a": [2], "c": [5, 4]})
    summary = play(begin(tmp_path), player)
    assert player.done == ["a?", "b?", "c?", "b", "c"]
    assert outcomes(summary) == {"b": "faster", "a": "failed", "c": "failed"}
    assert summary.exit_code == 4


def test_a_night_that_ended_with_failures_tries_only_those_when_it_is_resumed(tmp_path: Path) -> None:
    night = begin(tmp_path)
    play(night, Player(fails={"c": [3, 3]}))
    player = Player()
    summary = play(night, player)
    assert player.done == ["c"]
    assert (summary.exit_code, summary.sessions) == (0, 2)
    assert summary.status == "finished"


def test_a_killed_night_goes_on_where_it_was_in_the_same_run_folders(tmp_path: Path) -> None:
    night, player = begin(tmp_path), Player()

    class Killed(Exception):
        pass

    def killed(order: Order, stopped: Callable[[], bool]) -> Ended:
        if player.done[-1:] == ["b"]:
            raise Killed
        return player(order, stopped)

    log = Log(night / "night.jsonl", NIGHT_EVENT, "night")
    with pytest.raises(Killed):
        Night(night, log, threading.Event(), lambda text: None, killed).work()
    log.close()
    again = Player()
    assert play(night, again).exit_code == 0
    assert again.done == ["a", "c"]
    placed = {order.folder for order in player.orders}
    assert {order.folder for order in again.orders} < placed
    assert len(list((tmp_path / "runs").glob("run_*"))) == 3


def test_dollars_are_shared_and_what_they_do_not_reach_says_so(tmp_path: Path) -> None:
    player = Player(usd=1.5)
    summary = play(begin(tmp_path, budget=NightBudget(usd=3.0)), player)
    spent = {o.job.config.stem: o.usd for o in player.orders if not o.survey}
    assert spent == {"b": 3.0, "a": pytest.approx(3.0 - summary.tasks[0].usd, abs=1e-6)}  # type: ignore[operator]
    assert outcomes(summary)["c"] == "not reached"
    assert summary.exit_code == 0
    assert "budget" in summary.tasks[-1].reason


def test_hours_that_are_used_up_leave_the_rest_for_another_night(tmp_path: Path) -> None:
    player = Player()
    summary = play(begin(tmp_path, budget=NightBudget(hours=1e-9)), player)
    assert player.done == []
    assert set(outcomes(summary).values()) == {"not reached"}


def test_hours_left_are_handed_on_as_minutes(tmp_path: Path) -> None:
    player = Player()
    play(begin(tmp_path, budget=NightBudget(hours=2)), player)
    assert all(order.minutes is not None and 119 < order.minutes <= 120 for order in player.orders)


def test_a_signal_ends_the_night_with_130_and_it_can_be_gone_on_with(tmp_path: Path) -> None:
    night, stopped = begin(tmp_path), threading.Event()
    player = Player(stop_at=("b", stopped))
    summary = play(night, player, stopped)
    assert (summary.status, summary.exit_code) == ("interrupted", 130)
    assert player.done == ["a?", "b?", "c?", "b"]
    assert outcomes(summary) == {"b": "interrupted", "a": "queued", "c": "queued"}
    assert play(night, Player()).exit_code == 0


def test_a_task_that_waits_for_an_answer_keeps_the_night_open(tmp_path: Path) -> None:
    night = begin(tmp_path, "ab")
    summary = play(night, Player(fails={"a": [75]}))
    assert (summary.status, summary.exit_code, outcomes(summary)["a"]) == ("waiting", 75, "waiting")
    player = Player()
    assert play(night, player).exit_code == 0
    assert player.done == ["a"]


@pytest.mark.parametrize(
    ("codes", "code"),
    [((0, 0), 0), ((0, 2), 2), ((3, 2), 3), ((4, 3, 75), 4), ((75, 0), 75), ((-9, 4), 5), ((1,), 5), ((), 0)],
)
def test_the_exit_code_is_that_of_the_most_serious_failure(codes: Sequence[int], code: int) -> None:
    assert exit_code(codes) == code


def test_on_finish_is_told_once_and_its_failure_changes_nothing_but_the_page(tmp_path: Path) -> None:
    told = tmp_path / "told"
    night = begin(tmp_path, "ab", on_finish=f"sh -c 'cat >> {told}; exit 7'")
    summary = play(night, Player())
    assert summary.exit_code == 0
    assert "exit code 7" in (summary.told or "")
    assert "on_finish failed" in (night / "index.html").read_text()
    play(night, Player())
    (line,) = told.read_text().splitlines()
    assert [task["outcome"] for task in json.loads(line)["tasks"]] == ["faster", "faster"]


def test_the_page_is_one_file_that_says_of_each_task_what_its_own_report_says(tmp_path: Path) -> None:
    night = begin(tmp_path)
    summary = play(night, Player(fails={"a": [2]}))
    html = (night / "index.html").read_text()
    page = Page(html)
    assert page.open == []
    assert "script" not in page.tags
    assert [value for name, value in page.attributes if name == "src"] == []
    links = [value for name, value in page.attributes if name == "href" and value != "data:,"]
    assert len(set(links)) == 2
    assert all(link is not None and (night / link).is_file() for link in links)
    words = " ".join(page.words)
    assert "3.98× [3.91, 4.05]" in words
    assert "a broke <b>" in words
    assert "<b>" not in html
    assert "prefers-color-scheme: dark" in html
    assert 'name="viewport"' in html
    text = (night / "index.md").read_text()
    assert text.count("| faster | 3.98× [3.91, 4.05] |") == 2
    assert NightSummary.model_validate_json((night / "index.json").read_text()) == summary
    assert "2 faster, 1 failed" in as_text(summary)


def test_a_page_that_cannot_be_written_is_said_and_the_night_goes_on(tmp_path: Path) -> None:
    night, said = begin(tmp_path, "ab"), list[str]()
    (night / "index.json").mkdir()
    assert play(night, Player(), said=said).exit_code == 0
    assert any("cannot write" in line for line in said)


def test_a_run_whose_folder_is_gone_is_not_begun_anew_without_a_word(tmp_path: Path) -> None:
    night, said = begin(tmp_path), list[str]()
    stopped = threading.Event()
    play(night, Player(stop_at=("b", stopped)), stopped)
    play(night, Player(), said=said)
    assert sum("is gone, so it begins anew" in line for line in said) == 3  # the player leaves nothing when it surveys


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_ends_the_night_with_a_line_and_it_goes_on_once_there_is_space(tmp_path: Path) -> None:
    if os.system(f"mount -t tmpfs -o size=2m tmpfs {tmp_path} 2>/dev/null") != 0:
        pytest.skip("no permission to mount a file system here")
    try:
        night, filler = begin(tmp_path, "ab"), tmp_path / "filler"
        play(night, Player(fails={"b": [3, 3]}))
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"0" * 256)
        with pytest.raises(UnfitEnvironment, match="free space, then resume"):
            play(night, Player(fails={"b": [3, 3]}, reason="long " * 1000))
        filler.unlink()
        player = Player()
        assert play(night, player).exit_code == 0
        assert player.done == ["b"]
    finally:
        os.system(f"umount {tmp_path}")


def test_what_is_hoped_for_is_the_way_to_the_floor_times_how_often_such_hopes_came_true() -> None:
    assert expected_gain(0.9, 0.5) == pytest.approx(1.1513, abs=1e-4)
    assert expected_gain(0.0, 0.9) == 0
    assert expected_gain(None, 0.9) is None
    assert by_expected_gain([0, 1, 2, 3], {0: 0.0, 1: None, 2: 0.3}) == [2, 0, 1, 3]


def test_tasks_of_one_name_are_told_apart_by_their_files() -> None:
    jobs = [Job(config=Path(f"/{name}.yaml")) for name in ("x", "y", "z")]
    assert names_of(jobs, ["gemm", "gemm", None]) == ("gemm (x)", "gemm (y)", "z")
