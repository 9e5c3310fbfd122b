"""The live view on a real pseudo-terminal, as an emulator draws it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.terminal import Terminal

ROOT = Path(__file__).resolve().parents[4]

# Feeds the made-up run to the view that `run` uses, stops where `stop` says, and waits there.
SCRIPT = """
import sys, threading, time, warnings
from agent.progress import make_progress
from agent.this_process import stop_on_signals
from tests.unit.agent import event_log
kind, count, after = sys.argv[1], int(sys.argv[2]), sys.argv[3]
progress = make_progress(sys.stderr, 2, 30.0, 5.0)
stopped = threading.Event()
events = event_log.whole_run("anthropic")
ends = [i for i, e in enumerate(events) if e.type == kind]
with stop_on_signals(stopped, progress.activity):
    for event in events[: ends[count - 1] + 1]:
        progress(event)
        if after == "noisy":
            warnings.warn(f"a library warns of {event.seq}", stacklevel=1)
            print(f"a library writes {event.seq}", file=sys.stderr)
    while after == "wait" and not stopped.is_set():
        time.sleep(0.02)
    time.sleep(0.6)
    progress.close()
print("the prompt", file=sys.stderr)
sys.exit(130 if stopped.is_set() else 0)
"""


def view(*arguments: str, columns: int = 100, rows: int = 30, env: Mapping[str, str] | None = None) -> Terminal:
    return Terminal([sys.executable, "-c", SCRIPT, *arguments], ROOT, columns, rows, env)


def test_what_is_over_stands_above_what_is_being_done() -> None:
    with view("branch_written", "4", "wait") as terminal:
        terminal.until(lambda t: "building b0" in t.shown, "the branches")
        terminal.read(0.3)
        lines = terminal.shown.splitlines()
        terminal.press_ctrl_c()
        terminal.wait()
    settled = [line for line in lines if re.match(r" *(Climbing|Machine|Baseline|Iteration|Planned|Wrote) ", line)]
    assert [line.split()[0] for line in settled] == ["Climbing", "Machine", "Baseline", "Iteration", "Planned", "Wrote"]
    verb_ends = {re.match(r" *(\w+)", line).end() for line in settled}  # type: ignore[union-attr]
    assert verb_ends == {12}
    assert settled[-1].endswith("$0.50")
    times_end = {match.end() for line in settled if (match := re.search(r" (\d+ s|\d:\d\d)(?= |$)", line))}
    assert len(times_end) == 1, "times stand in one column, with a cost beside them or without"
    (b0,) = (line for line in lines if re.match(r" +b0 ", line))
    assert re.search(r"b0 +●\S○○ +building +16 by 16 tiles", b0)
    assert re.search(r"iteration 1 of 2 · .*left · \$0\.50 .*\$4\.50 left", lines[-1])


def test_when_the_run_is_over_only_its_story_is_left() -> None:
    with view("run_ended", "1", "end") as terminal:
        assert terminal.wait() == 0
        lines = terminal.scrolled.splitlines()
        assert not terminal.cursor_hidden
    assert lines[-1] == "the prompt"
    assert re.match(r" +Finished \(iterations\) 3\.98× \[3\.91, 4\.05\] over baseline", lines[-2])
    assert not any("○" in line or "●" in line for line in lines)
    assert "" not in lines


def test_warnings_of_libraries_stand_on_lines_of_their_own() -> None:
    with view("branch_written", "4", "noisy") as terminal:
        terminal.wait()
        lines = terminal.scrolled.splitlines()
    for number in range(26):
        assert f"a library writes {number}" in lines
        assert any(line.endswith(f"a library warns of {number}") for line in lines)
    assert sum(line.lstrip().startswith("Wrote 4 branches") for line in lines) == 1
    assert lines[-1] == "the prompt"


def test_ctrl_c_says_that_it_was_heard_and_leaves_a_clean_screen() -> None:
    with view("branch_written", "4", "wait") as terminal:
        terminal.until(lambda t: "building b0" in t.shown, "the branches")
        terminal.press_ctrl_c()
        terminal.until(lambda t: "stopping after this step" in t.shown, "word of it")
        assert terminal.wait() == 130
        lines = terminal.scrolled.splitlines()
        assert not terminal.cursor_hidden
    assert lines[-1] == "the prompt"
    assert not any("^C" in line or "stopping" in line or "○" in line for line in lines)


def test_a_killed_process_leaves_the_cursor() -> None:
    with view("branch_written", "4", "wait") as terminal:
        terminal.until(lambda t: "building b0" in t.shown, "the branches")
        terminal.process.kill()
        terminal.wait()
        assert not terminal.cursor_hidden


@pytest.mark.parametrize("columns", [28, 60, 200])
def test_no_width_breaks_a_line_of_the_changing_part(columns: int) -> None:
    with view("champion_decided", "1", "wait", columns=columns, rows=50) as terminal:
        terminal.until(lambda t: re.search(r"b3 ", t.shown) is not None, "the branches")
        terminal.read(0.5)
        lines = terminal.shown.splitlines()
        terminal.press_ctrl_c()
        terminal.wait()
    first = next(i for i, line in enumerate(lines) if re.match(r" *b0 ", line))
    assert [line.split()[0] for line in lines[first : first + 4]] == ["b0", "b1", "▸", "b3"]
    assert len(lines) == first + 6  # four branches, what is being done, the totals
    assert all(len(line) <= columns for line in lines)


def test_many_redraws_on_a_short_terminal_leave_no_trace() -> None:
    with view("run_ended", "1", "noisy", columns=70, rows=8) as terminal:
        terminal.wait()
        lines = terminal.scrolled.splitlines()
    assert not any("○" in line for line in lines)
    assert sum(line.lstrip().startswith("Accepted") for line in lines) == 1


def test_no_color_takes_the_colours_and_leaves_the_view() -> None:
    with view("branch_written", "4", "wait", env={"NO_COLOR": "1"}) as terminal:
        terminal.until(lambda t: "building b0" in t.shown, "the branches")
        terminal.press_ctrl_c()
        terminal.wait()
        assert re.search(rb"\x1b\[(\d+;)*(3[0-7]|9[0-7]|38;)", terminal.raw) is None


def test_a_dumb_terminal_gets_plain_lines() -> None:
    with view("branch_written", "4", "end", env={"TERM": "dumb"}) as terminal:
        terminal.wait()
        assert b"\x1b" not in terminal.raw
        assert re.search(r"(?m)^2026-11-30T01:00:00Z run_20261130_010000 made_up_gemm", terminal.scrolled)
