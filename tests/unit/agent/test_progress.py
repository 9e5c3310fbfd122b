"""What a person watching a run sees, on a terminal and in a cron mail."""

from __future__ import annotations

import io
import os
import pty
import re
import threading

import pytest
from rich.console import Console

from agent import events as ev
from agent.progress import PlainProgress, make_progress
from agent.watching.limits import Limits
from agent.watching.terminal import LiveProgress
from tests.unit.agent import event_log

STAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ")


def plain_lines(events: list[ev.AnyEvent]) -> list[str]:
    stream = io.StringIO()
    progress = PlainProgress(stream)
    for event in events:
        progress(event)
    progress.close()
    return stream.getvalue().splitlines()


def live(events: list[ev.AnyEvent], *, height: int = 40) -> tuple[str, str]:
    """What scrolled above and stays, and what the changing part shows at the end."""
    console = Console(file=io.StringIO(), width=120, height=height, force_terminal=True, record=True, _environ={})
    progress = LiveProgress(console, Limits(iterations=3))
    for event in events:
        progress(event)
    progress.activity("timing 4 branches")
    shown = progress.__rich__()
    progress.close()
    settled = console.export_text()
    with console.capture() as capture:
        console.print(shown)
    return settled, capture.get()


def text_of(rendered: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", rendered)


def test_a_log_reader_finds_every_result_on_its_own_timestamped_line() -> None:
    lines = plain_lines(event_log.whole_run())
    assert all(STAMP.match(line) for line in lines)
    told = [STAMP.sub("", line) for line in lines]
    for expected in (
        "baseline pass 800.0 ms",
        "iter 1 plan: memory.cache_blocking, compute.fma",
        "iter 1 plan-0 answered, 2.0k tokens out, $0.10",
        "iter 1 b2 pass 200.0 ms",
        "iter 1 b3 fail (C[5] is 1.0, not 2.0)",
        "iter 1 champion iter1/b2 vs baseline: 4.00× [3.90, 4.10]",
        "iter 1 machine code: compute.fma verified, memory.cache_blocking none",
        "iter 1 without memory.cache_blocking rejected at build: does not compile",
        "iter 1 attribution: compute.fma +150.0 ms effective; memory.cache_blocking – unverified",
        "iter 2 b1 suspect 9.000 ms (9.000 ms is under the floor at 12.50 ms)",
        "iter 2 not-accepted: 0.995 does not exceed 1.020",
        "best vs baseline: 3.98× [3.91, 4.05]",
        "note: clock frequency varied by 3%",
        "finished (iterations)",
    ):
        assert expected in told
    assert lines[0].startswith("2026-11-30T01:00:00Z run_20261130_010000 made_up_gemm")


def test_compiler_output_cannot_forge_lines_or_steer_the_terminal() -> None:
    lines = plain_lines(event_log.whole_run())
    assert "\x1b" not in "".join(lines)
    (line,) = (line for line in lines if "rejected at build: <script>" in line)
    assert line.endswith("red next line")


def test_why_a_run_stopped_early_is_in_the_log() -> None:
    events = event_log.stamped([ev.Paused(key="0", status="waiting", reason="answer iter1-plan-0 is not there")])
    assert plain_lines(events) == ["2026-11-30T01:00:00Z waiting: answer iter1-plan-0 is not there"]


def test_activity_from_many_threads_stays_whole_lines() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream)
    threads = [threading.Thread(target=progress.activity, args=(f"building branch {i}",)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = sorted(STAMP.sub("", line) for line in stream.getvalue().splitlines())
    assert told == sorted(f"building branch {i} …" for i in range(16))


def test_the_same_activity_is_said_once() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream)
    progress.activity("timing b0")
    progress.activity("timing b0")
    assert stream.getvalue().count("timing b0") == 1


def test_live_view_shows_branches_best_cost_and_activity() -> None:
    events = [*event_log.opening(), *event_log.first_iteration()[:-1]]
    _, changing = live(event_log.stamped(events))
    shown = text_of(changing)
    assert re.search(r"b0 +●✗○○ +rejected", shown)
    assert re.search(r"b1 +●●●● +pass +250\.0 ms +3\.20× +32 by 32 tiles", shown)
    assert re.search(r"▸ b2 +●●●● +pass +200\.0 ms +4\.00×", shown)
    assert re.search(r"b3 +●●✗○ +fail +C\[5\] is 1\.0", shown)
    assert "timing 4 branches" in shown
    assert re.search(r"iteration 1 of 3 · best 200\.0 ms 4\.00× · \d+:\d\d · \$0\.50", shown)


def test_what_is_left_of_a_budget_is_shown() -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True, _environ={})
    progress = LiveProgress(console, Limits(iterations=3, minutes=60, usd=2.0))
    progress.catch_up(event_log.whole_run()[:30])
    with console.capture() as capture:
        console.print(progress.__rich__())
    progress.close()
    assert re.search(r"5:48 ━─+ 54:12 left · \$0\.50 ━━─+ \$1\.50 left", text_of(capture.get()))


def test_a_suspect_time_is_shown_without_a_speedup() -> None:
    _, changing = live(event_log.whole_run()[:-4])
    (line,) = (line for line in text_of(changing).splitlines() if "suspect" in line)
    assert "9.000 ms" in line
    assert "×" not in line


def test_past_iterations_and_the_result_scroll_above_and_stay() -> None:
    settled, _ = live(event_log.whole_run())
    assert re.search(r"Accepted b2 200\.0 ms, 3\.90 exceeds 1\.020 +\d:\d\d +\$0\.50", settled)
    assert re.search(r"Kept out 0\.995 does not exceed 1\.020", settled)
    assert re.search(r"Compared 3\.98× \[3\.91, 4\.05\] best over baseline", settled)
    assert "Note clock frequency varied by 3%" in settled
    assert "Finished (iterations)" in settled


def test_many_branches_fit_a_small_terminal() -> None:
    opening = [*event_log.opening(), event_log.roofline(1, 800.0, (0.3, 0.9, 0.1), "memory")]
    branches = [event_log.evaluated(f"iter1/b{i}", 1, f"b{i}", 300.0 + i) for i in range(64)]
    _, changing = live(event_log.stamped([*opening, *branches]), height=24)
    shown = text_of(changing).splitlines()
    assert len(shown) < 24
    assert any("… 46 more" in line for line in shown)
    assert "iteration 1 of 3" in shown[-1]


def test_a_resumed_run_shows_what_was_settled_before() -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True, record=True, _environ={})
    progress = LiveProgress(console, Limits(iterations=3))
    progress.catch_up(event_log.whole_run()[:-3])
    progress.close()
    assert re.search(r"Kept out 0\.995", console.export_text())


def test_the_log_of_a_resumed_run_names_the_run_and_repeats_nothing() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream)
    progress.catch_up(event_log.whole_run())
    assert stream.getvalue().splitlines() == [
        "2026-11-30T01:00:00Z run_20261130_010000 made_up_gemm cpp, replay some-model"
    ]


def test_a_narrow_terminal_cuts_lines_instead_of_breaking_them() -> None:
    console = Console(file=io.StringIO(), width=50, force_terminal=True, record=True, _environ={})
    progress = LiveProgress(console, Limits(iterations=3))
    progress.catch_up(event_log.whole_run())
    progress.close()
    lines = [line for line in console.export_text().splitlines() if re.match(r" *[A-Z]", line)]
    assert all(len(line) <= 50 for line in lines[:-1]), (
        "the changing part, which is not there any more, follows the last"
    )
    (line,) = (line for line in lines if "Checked the task" in line)
    assert line.rstrip().endswith("…")


def test_a_pipe_gets_plain_lines() -> None:
    assert isinstance(make_progress(io.StringIO(), 3), PlainProgress)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [("TERM", "xterm-256color", LiveProgress), ("TERM", "dumb", PlainProgress), ("NO_COLOR", "1", LiveProgress)],
)
def test_a_terminal_gets_the_live_view_unless_it_says_no(
    name: str, value: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv(name, value)
    leader, follower = pty.openpty()
    with os.fdopen(leader, "rb"), os.fdopen(follower, "w") as terminal:
        progress = make_progress(terminal, 3)
        progress.close()
        assert isinstance(progress, kind)
