"""The live view: what is over scrolls up, one line a stage; below it a few calm lines say what is being done now."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from agent import events as ev
from agent.events import AnyEvent
from agent.report import fmt
from agent.watching.branch_steps import STEPS, BranchSteps, Mark
from agent.watching.doing import doing_now
from agent.watching.limits import Limits
from agent.watching.story import Line, Story

_VERB = 12  # columns, as wide as the longest verb
_WIDEST = 112
_TONES = {"plain": "bold green", "good": "bold green", "bad": "bold red", "warn": "bold yellow", "head": "bold cyan"}
_MARKS: dict[Mark, tuple[str, str]] = {
    "open": ("○", "dim"),
    "busy": ("◐", "cyan"),
    "good": ("●", "green"),
    "bad": ("✗", "red"),
    "unsure": ("◑", "yellow"),
}
_WORDS = {
    "pass": "green",
    "fail": "red",
    "rejected": "red",
    "error": "red",
    "suspect": "yellow",
    "unverified": "yellow",
}
_ROWS_ELSEWHERE = 6  # rows of the region that are not branches, with some air
_BAR = 8


class LiveProgress:
    """Listens to a journal, or to who follows one. Nothing of it is read by anything."""

    def __init__(self, console: Console, limits: Limits) -> None:
        self._console = console
        self._limits = limits
        self._story = Story()
        self._activity = ""
        self._held = ""
        self._since = time.monotonic()
        self._clock = (0.0, time.monotonic())
        self._spinner = Spinner("dots", style="cyan")
        # The renderer reads whole values that `__call__` replaces; taking a lock there could deadlock with Live's own.
        self._branches: tuple[BranchSteps, ...] = ()
        self._live = self._start()

    def _start(self) -> Live:
        live = Live(self, console=self._console, refresh_per_second=8, transient=True, redirect_stdout=False)
        live.start()
        # It stays visible: a process that is killed here could not bring it back.
        self._console.show_cursor(True)
        return live

    def open(self, title: str) -> None:
        """Go on after `close`, under a line that says with what."""
        self._console.print(self._settled(Line("Back to", title, "head", None, self._story.state.cost.usd, "", 0.0)))
        self._held = ""
        self._live = self._start()

    def catch_up(self, past: Sequence[AnyEvent]) -> None:
        """Show what was settled before."""
        self._show([line for event in past for line in self._taken(event)])

    def __call__(self, event: AnyEvent) -> None:
        """Take one event."""
        self._show(self._taken(event))

    def _taken(self, event: AnyEvent) -> list[Line]:
        lines = self._story.take(event)
        self._branches = self._story.branches
        self._clock = (event.elapsed_s, time.monotonic())
        if any(line.seconds is not None for line in lines):  # what was being done is over
            self._activity = ""
            self._since = time.monotonic()
        return lines

    def _show(self, lines: Sequence[Line]) -> None:
        if lines:
            self._console.print(Group(*map(self._settled, lines)))

    def activity(self, text: str) -> None:
        """Say what is being done now."""
        self._activity = fmt.one_line(text)
        self._since = time.monotonic()

    def age(self, at: str) -> None:
        """The newest event was logged at `at`: who reads the log of another process may come to it late."""
        age_s = max(0.0, (datetime.now(timezone.utc) - datetime.fromisoformat(at)).total_seconds())
        elapsed_s, _ = self._clock
        now = time.monotonic()
        self._clock = (elapsed_s, now - age_s)
        self._since = now - age_s

    def hold(self, text: str) -> None:
        """Nobody works on the run: say `text`, and stop the clock. "" goes on."""
        self._held = fmt.one_line(text)

    def close(self) -> None:
        """Remove the changing lines; what was settled stays."""
        self._live.stop()

    def __rich__(self) -> RenderableType:
        """The changing part, as of now: drawn anew with each line that is printed above it."""
        parts: list[RenderableType] = []
        if self._branches and self._story.state.iteration and not self._idle():
            parts.append(self._branch_table())
        parts += [self._now(), self._totals()]
        return Group(*parts)

    def _idle(self) -> bool:
        return bool(self._held) or isinstance(self._story.last, ev.IterationEnded | ev.RunEnded | ev.Paused)

    @property
    def _width(self) -> int:
        return min(self._console.width, _WIDEST)

    def _settled(self, line: Line) -> RenderableType:
        width = self._width
        with_time, with_cost = width >= 56, width >= 72
        columns = [8] * with_time + [8] * with_cost
        table = Table.grid(padding=(0, 1, 0, 0), expand=False)
        verb = _VERB if width >= 40 else len(line.verb)
        table.add_column(width=verb, justify="right", no_wrap=True, style=_TONES[line.tone])
        whole = line.tone in ("warn", "bad")  # what went wrong is worth two lines
        text_width = max(8, width - verb - 1 - sum(columns) - len(columns) - 1)
        table.add_column(
            width=text_width,
            no_wrap=not whole,
            overflow="fold" if whole else "ellipsis",
            style="bold" if line.tone == "head" else "",
        )
        for column in columns:
            table.add_column(width=column, justify="right", no_wrap=True, style="dim")
        cells = [Text(line.verb), Text(line.text)]
        if with_time:
            cells.append(Text(_took(line.seconds) if line.seconds and line.seconds >= 0.05 else ""))
        if with_cost:
            cells.append(Text("" if line.usd == 0.0 else fmt.dollars(line.usd)))
        table.add_row(*cells)
        return table

    def _branch_table(self) -> Table:
        width = self._width
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=_VERB if width >= 56 else 6, justify="right", no_wrap=True)
        table.add_column(width=len(STEPS), no_wrap=True)
        table.add_column(min_width=8, no_wrap=True)
        with_times, with_remark = width >= 44, width >= 64
        for _ in ("time", "over baseline") if with_times else ():
            table.add_column(justify="right", no_wrap=True)
        if with_remark:
            table.add_column(no_wrap=True, overflow="ellipsis", style="dim", max_width=max(10, width - 58))
        room = max(2, self._console.height - _ROWS_ELSEWHERE)
        for step in self._branches[:room]:
            table.add_row(*self._branch_cells(step)[: len(table.columns)])
        if len(self._branches) > room:
            table.add_row("", "", Text(f"… {len(self._branches) - room} more", style="dim"))
        return table

    def _branch_cells(self, step: BranchSteps) -> list[Text]:
        state, baseline_ms = step.state, self._story.state.baseline_ms
        marks = Text()
        for mark in step.marks:
            character, style = _MARKS[mark]
            marks.append(self._spinner_frame() if mark == "busy" else character, style=style)
        ms = state.median_ms if state else None
        timed = state is not None and state.status == "pass"  # a suspect time is shown, but is no speedup
        ratio = baseline_ms / ms if timed and ms and baseline_ms else None
        remark = (state.reason if state and state.status != "pass" else None) or step.variant
        champion = state is not None and state.champion
        return [
            Text(f"{'▸ ' if champion else ''}{step.name}", style="bold" if champion else ""),
            marks,
            Text(step.doing, style=_WORDS.get(step.doing, "cyan" if "busy" in step.marks else "dim")),
            Text(fmt.duration(ms) if ms else ""),
            Text(fmt.speedup(ratio) if ratio else ""),
            Text(fmt.one_line(remark)),
        ]

    def _spinner_frame(self) -> str:
        frames = self._spinner.frames
        return frames[int(time.monotonic() * 1000 / self._spinner.interval) % len(frames)]

    def _now(self) -> RenderableType:
        if self._held:
            return _one(Text(" " * (_VERB - 1)), Text("‖", style="yellow"), Text(f" {self._held}", style="yellow"))
        said = self._activity or doing_now(self._story, self._limits.iterations) or "working"
        took = time.monotonic() - self._since
        frame = Text(self._spinner_frame(), style="cyan")
        indent = " " * (_VERB - 1 if self._width >= 56 else 1)
        return _one(
            Text(indent), frame, Text(f" {said}"), Text(f"  {fmt.wall(took)}" if took >= 2 else "", style="dim")
        )

    def _totals(self) -> RenderableType:
        """Iteration, best, time and money; on a narrow terminal without bars, then without the best."""
        state, limits = self._story.state, self._limits
        elapsed_s, since = self._clock
        if not self._held:
            elapsed_s += time.monotonic() - since
        opening = []
        if state.iteration:
            opening.append(
                Text(f"iteration {state.iteration}{f' of {limits.iterations}' if limits.iterations else ''}")
            )
        best = []
        if state.best_ms is not None and state.best_from != "baseline" and state.baseline_ms:
            over = fmt.speedup(state.baseline_ms / state.best_ms)
            best.append(Text(f"best {fmt.duration(state.best_ms)} ").append(over, style="bold green"))

        def spending(bar: int) -> list[Text]:
            parts = [_spent(fmt.wall, elapsed_s, limits.minutes and 60 * limits.minutes, bar)]
            if state.cost.usd != 0.0 or limits.usd is not None:
                parts.append(_spent(fmt.dollars, state.cost.usd, limits.usd, bar))
            return parts

        indent = " " * (_VERB + 1 if self._width >= 56 else 3)
        for parts in ([*opening, *best, *spending(_BAR)], [*opening, *best, *spending(0)], [*opening, *spending(0)]):
            line = Text(indent).append_text(Text(" · ", style="dim").join(parts))
            if line.cell_len <= self._width:
                break
        return _cropped(line)


def _spent(show: Callable[[float], str], value: float | None, limit: float | None, bar: int) -> Text:
    """`5:12`, and with a limit what is left of it, after a bar `bar` columns long."""
    if value is None:
        return Text(fmt.MISSING)
    text = Text(show(value))
    if limit is None:
        return text
    share = min(1.0, value / limit)
    full = round(bar * share)
    style = "red" if share > 0.95 else "yellow" if share > 0.8 else "cyan"
    if bar:
        text.append(" ").append("━" * full, style=style).append("─" * (bar - full), style="dim").append(" ")
    else:
        text.append(", ")
    return text.append(f"{show(max(0.0, limit - value))} left", style="dim" if bar else "")


def _took(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 9.95 else fmt.wall(seconds)


def _one(*parts: Text) -> Text:
    return _cropped(Text.assemble(*parts))


def _cropped(text: Text) -> Text:
    text.no_wrap = True
    text.overflow = "ellipsis"
    return text
