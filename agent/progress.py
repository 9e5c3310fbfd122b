"""What a person sees while a run works: a live view on a terminal, plain timestamped lines anywhere else.

Both write to stderr, both are fed by the journal, and neither is read by anything.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from agent import events as ev
from agent.events import AnyEvent
from agent.report import fmt
from agent.report.view import name_of
from agent.state import BranchState, IterationState, State, StateFold
from backends.types import Rejected

_STATUS_STYLE = {
    "pass": "green",
    "accepted": "green",
    "fail": "red",
    "failed": "red",
    "rejected": "red",
    "error": "red",
    "suspect": "yellow",
    "unverified": "yellow",
}
_ROWS_ELSEWHERE = 8  # rows of the live region that are not branches, with some air


class Progress(Protocol):
    """Listens to the journal. Events come from one thread at a time; `activity` may come from any."""

    def catch_up(self, past: Sequence[AnyEvent]) -> None:
        """Learn what the log holds already, before the first new event."""
        ...

    def __call__(self, event: AnyEvent) -> None:
        """Take one event."""
        ...

    def activity(self, text: str) -> None:
        """Say what is being done now (`building 4 branches`)."""
        ...

    def close(self) -> None:
        """Leave the terminal as a shell expects it. May be called twice."""
        ...


def make_progress(stream: TextIO, iterations: int) -> Progress:
    """The live view where `stream` is a terminal that can show it, else plain lines.

    Args:
        stream: stderr; stdout belongs to `--json`.
        iterations: how many the run may take.
    """
    plain = not stream.isatty() or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    if plain:
        return PlainProgress(stream)
    return LiveProgress(Console(file=stream, highlight=False), iterations)


class PlainProgress:
    """One line per event worth reading, for cron mails and logs: no escape codes, never rewritten."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._activity = ""

    def catch_up(self, past: Sequence[AnyEvent]) -> None:
        """Name the run; what an earlier session told is in that session's log."""
        for event in past:
            if isinstance(event, ev.RunStarted):
                self(event)

    def __call__(self, event: AnyEvent) -> None:
        """Take one event."""
        line = describe(event)
        if line:
            self._write(event.at, line)

    def activity(self, text: str) -> None:
        """Say what is being done now; the same thing twice in a row is said once."""
        with self._lock:
            repeated, self._activity = text == self._activity, text
        if not repeated:
            self._write(datetime.now(timezone.utc).isoformat(), f"{fmt.one_line(text)} …")

    def close(self) -> None:
        """Nothing is held."""

    def _write(self, at: str, text: str) -> None:
        with self._lock:
            self._stream.write(f"{fmt.instant(at)} {text}\n")
            self._stream.flush()


class LiveProgress:
    """A few calm lines at the bottom that change; what is settled scrolls above them and stays."""

    def __init__(self, console: Console, iterations: int) -> None:
        self._console = console
        self._iterations = iterations
        self._fold = StateFold()
        self._state = self._fold.state
        self._plan: ev.PlanDecided | None = None
        self._activity = ""
        self._spinner = Spinner("dots", style="cyan")
        self._clock = (0.0, time.monotonic())
        # The renderer reads whole values that `__call__` replaces; taking a lock there could deadlock with Live's own.
        self._live = Live(
            get_renderable=self.render, console=console, refresh_per_second=8, transient=True, redirect_stdout=False
        )
        self._live.start()

    def catch_up(self, past: Sequence[AnyEvent]) -> None:
        """Show what was settled before."""
        for event in past:
            self(event)

    def __call__(self, event: AnyEvent) -> None:
        """Take one event."""
        self._fold.take(event)
        self._state = self._fold.state
        self._clock = (event.elapsed_s, time.monotonic())
        self._settle(event)

    def activity(self, text: str) -> None:
        """Say what is being done now."""
        self._activity = fmt.one_line(text)

    def close(self) -> None:
        """Remove the changing lines; what was settled stays."""
        self._live.stop()

    def render(self) -> RenderableType:
        """The changing part, as of now."""
        parts: list[RenderableType] = []
        state = self._state
        if state.iteration:
            parts += [self._header(state), self._branches(state)]
        best = _best_line(state)
        if best is not None:
            parts.append(best)
        elapsed_s, since = self._clock
        elapsed = fmt.wall(elapsed_s + time.monotonic() - since)
        cost = fmt.dollars(state.cost.usd)
        self._spinner.update(text=Text.assemble(self._activity or "working", (f"   {elapsed}   {cost}", "dim")))
        parts.append(self._spinner)
        return Group(*parts)

    def _header(self, state: State) -> Text:
        line = Text.assemble("\n", (f"iteration {state.iteration}/{self._iterations}", "bold"))
        if state.roofline_history:
            line.append(f"   {_bound(state)}", style="dim")
        return _cropped(line)

    def _branches(self, state: State) -> Table:
        table = Table.grid(padding=(0, 2))
        for justify in ("left", "left", "right", "right"):
            table.add_column(justify=justify, no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1, style="dim")
        plan = self._plan.plan if self._plan is not None and self._plan.iteration == state.iteration else None
        variants = {b.name: b.variant for b in plan.branches} if plan else {}
        known = {b.name: b for b in state.branches if b.iteration == state.iteration}
        names = list(dict.fromkeys([*variants, *known]))
        room = max(3, self._console.height - _ROWS_ELSEWHERE)
        for name in names[:room]:
            table.add_row(*_branch_cells(name, known.get(name), variants.get(name, ""), state.baseline_ms))
        if len(names) > room:
            table.add_row(Text(f"  … {len(names) - room} more", style="dim"))
        return table

    def _settle(self, event: AnyEvent) -> None:
        """Print what will not change any more."""
        if isinstance(event, ev.PlanDecided):
            self._plan = event
        line = self._settled(event)
        if line is not None:
            # Not taken from the text: `print` joins what it is given into a new one.
            self._console.print(line, no_wrap=line.no_wrap, overflow=line.overflow)

    def _settled(self, event: AnyEvent) -> Text | None:
        if isinstance(event, ev.RunStarted):
            made_by = " · ".join(filter(None, (event.backend, event.provider, event.model)))
            return _cropped(Text.assemble((event.task, "bold"), (f"   {made_by}   {event.run_id}", "dim")))
        if isinstance(event, ev.Evaluated) and event.branch == "baseline":
            return _cropped(Text.assemble(("  baseline  ", ""), describe(event).removeprefix("baseline ")))
        if isinstance(event, ev.IterationEnded):
            line = next(i for i in self._state.iterations if i.iteration == event.iteration)
            return _cropped(_iteration_line(line))
        if isinstance(event, ev.Noted | ev.RequestFailed | ev.RequestRetried):
            return Text.assemble(("  ! ", "yellow"), describe(event))
        if isinstance(event, ev.RunEnded | ev.Paused) or _is_final(event):
            return Text(f"  {describe(event)}", style="bold")
        return None


def describe(event: AnyEvent) -> str:
    """One event as one line, "" for what is not worth one."""
    if isinstance(event, ev.ExploitsPlayed):
        return fmt.one_line(f"known exploits rejected: {', '.join(event.rejected)}")
    if isinstance(
        event, ev.RunStarted | ev.SessionStarted | ev.TaskChecked | ev.CeilingsMeasured | ev.FloorFound | ev.AaMeasured
    ):
        return _describe_start(event)
    if isinstance(event, ev.RequestRetried):
        return fmt.one_line(
            f"iter {event.iteration} asked again in {fmt.duration(event.wait_s * 1e3)}: {event.message}"
        )
    if isinstance(event, ev.RequestSent | ev.ReplyReceived | ev.RequestFailed | ev.Recalled | ev.PlanDecided):
        return _describe_asking(event)
    return fmt.one_line(_describe_measuring(event))


def _describe_start(
    event: ev.RunStarted | ev.SessionStarted | ev.TaskChecked | ev.CeilingsMeasured | ev.FloorFound | ev.AaMeasured,
) -> str:
    if isinstance(event, ev.RunStarted):
        return fmt.one_line(f"{event.run_id} {event.task} {event.backend}, {event.provider} {event.model}".rstrip())
    if isinstance(event, ev.SessionStarted):
        device = event.environment.gpu or event.environment.device
        return fmt.one_line(f"{'started' if event.key == '0' else 'resumed'} on {device.name}")
    if isinstance(event, ev.TaskChecked):
        dropped = len(event.check.dropped_checks)
        left_out = [f"{dropped} checks left out, the baseline fails them"] if dropped else []
        rejects = f"task checked: rejects {', '.join(event.check.rejected)}"
        return fmt.one_line("; ".join([rejects, *left_out, *event.notes]))
    if isinstance(event, ev.CeilingsMeasured):
        return "ceilings measured"
    if isinstance(event, ev.FloorFound):
        return f"floor {fmt.duration(event.floor_ms)}"
    return f"A/A spread {fmt.percent(event.spread)}"


def _describe_asking(
    event: ev.RequestSent | ev.ReplyReceived | ev.RequestFailed | ev.Recalled | ev.PlanDecided,
) -> str:
    where = f"iter {event.iteration}"
    if isinstance(event, ev.ReplyReceived):
        tokens = event.reply.usage.output
        cost = ", ".join(
            filter(None, (f"{fmt.count(tokens)} tokens out" if tokens else "", fmt.dollars(event.reply.usd)))
        )
        return fmt.one_line(f"{where} {_step(event)} answered, {cost}")
    if isinstance(event, ev.RequestFailed):
        return fmt.one_line(f"{where} {_step(event)} failed ({event.kind}): {event.message}")
    if isinstance(event, ev.Recalled):
        recall = event.recall
        told = len(recall.blocked) + len(recall.preferred) + len(recall.lessons)
        parts = f"{len(recall.blocked)} blocked, {len(recall.preferred)} preferred, {len(recall.lessons)} lessons"
        return f"{where} memory: {parts}" if told else ""
    if isinstance(event, ev.PlanDecided):
        if event.plan is None:
            return fmt.one_line(f"{where} no plan: {'; '.join(event.problems)}")
        return fmt.one_line(f"{where} plan: {', '.join(event.plan.method_ids)}")
    return ""


def _describe_measuring(event: AnyEvent) -> str:
    if isinstance(event, ev.Evaluated):
        return f"{_kernel(event)} {_outcome(event)}"
    if isinstance(event, ev.BranchWritten):
        dropped = event.rejected
        return f"iter {event.iteration} {event.branch} rejected at {dropped.stage}: {dropped.reason}" if dropped else ""
    if isinstance(event, ev.Profiled):
        return f"profiled ({event.profile.source}, {event.profile.level})"
    if isinstance(event, ev.RooflineRecorded):
        h = event.headroom
        axes = f"compute {fmt.share(h.compute)}, memory {fmt.share(h.memory)}, latency {fmt.share(h.latency)}"
        return f"iter {event.iteration} best {fmt.duration(h.time_ms)}, {h.bound} leads; headroom {axes}"
    if isinstance(event, ev.Compared):
        c = event.outcome
        what = f"iter {event.iteration} champion {event.b} vs {event.a}" if event.iteration else "best vs baseline"
        if not (_is_final(event) or name_of(event).endswith("/champion")):
            return ""
        return f"{what}: {c.reason if isinstance(c, Rejected) else fmt.speedup(c.speedup, c.low, c.high)}"
    if isinstance(event, ev.Sanitized):
        found, clean = "; ".join(map(str, event.report.findings)), ", ".join(event.report.clean)
        return f"{event.kernel} under sanitizers: {found or f'clean ({clean})' if found or clean else 'no tool ran'}"
    if isinstance(event, ev.ChampionDecided):
        return f"iter {event.iteration} {event.branch} {'accepted' if event.accepted else 'kept out'}: {event.reason}"
    if isinstance(event, ev.MachineCodeChecked):
        found = ", ".join(f"{p.method} {p.verdict}" for p in event.presence)
        return f"iter {event.iteration} machine code: {found}" if found else ""
    if isinstance(event, ev.AblationBuilt):
        fell = event.rejected
        how = f"rejected at {fell.stage}: {fell.reason}" if fell else f"built by {event.form}"
        return f"iter {event.iteration} without {event.method} {how}"
    if isinstance(event, ev.Attributed):
        rows = "; ".join(f"{r.method} {fmt.difference(r.attribution_ms)} {r.method_class}" for r in event.rows)
        return f"iter {event.iteration} attribution: {rows}" if rows else ""
    return _describe_end(event)


def _describe_end(event: AnyEvent) -> str:
    if isinstance(event, ev.IterationEnded):
        return f"iter {event.iteration} {event.status}: {event.reason}"
    if isinstance(event, ev.RunEnded):
        return f"finished ({event.stop_reason}){': ' + event.note if event.note else ''}"
    if isinstance(event, ev.Paused):
        return f"{event.status}: {event.reason}"
    return f"note: {event.text}" if isinstance(event, ev.Noted) else ""


def _is_final(event: AnyEvent) -> bool:
    return isinstance(event, ev.Compared) and name_of(event) == "final"


def _step(event: ev.ReplyReceived | ev.RequestFailed) -> str:
    return event.key.removeprefix(f"iter{event.iteration}-")


def _kernel(event: ev.Evaluated) -> str:
    return f"iter {event.iteration} {event.branch}" if event.iteration else event.branch


def _outcome(event: ev.Evaluated) -> str:
    outcome = event.outcome
    if isinstance(outcome, Rejected):
        return f"rejected at {outcome.stage}: {outcome.reason}"
    time_text = fmt.duration(outcome.timing.median_ms) if outcome.timing else ""
    return " ".join(filter(None, (outcome.verdict, time_text, outcome.reason and f"({outcome.reason})")))


def _cropped(text: Text) -> Text:
    text.no_wrap = True
    text.overflow = "ellipsis"
    return text


def _bound(state: State) -> str:
    last = state.roofline_history[-1]
    over = "" if not last.floor_ms else f", {fmt.speedup(last.time_ms / last.floor_ms)} the floor"
    return "near peak" if last.near_peak else f"{last.bound} leads{over}"


def _branch_cells(name: str, branch: BranchState | None, variant: str, baseline_ms: float | None) -> tuple[Text, ...]:
    status = branch.status if branch else "waiting"
    mark = "▸ " if branch and branch.champion else "  "
    timed = branch is not None and branch.status == "pass"  # a suspect time is shown, but is no speedup
    ratio = baseline_ms / branch.median_ms if branch and timed and branch.median_ms and baseline_ms else None
    remark = (branch.reason if branch else None) or variant
    if branch and branch.repairs:
        remark = f"repair {branch.repairs}: {remark}"
    return (
        Text(f"{mark}{name}"),
        Text(status, style=_STATUS_STYLE.get(status, "dim")),
        Text(fmt.duration(branch.median_ms) if branch and branch.median_ms else ""),
        Text(fmt.speedup(ratio) if ratio else ""),
        Text(fmt.one_line(remark)),
    )


def _best_line(state: State) -> Text | None:
    if state.best_ms is None:
        return None
    line = Text.assemble("best  ", (fmt.duration(state.best_ms), "bold"))
    if state.best_from != "baseline" and state.baseline_ms:
        line.append(f"   {fmt.speedup(state.baseline_ms / state.best_ms)} over baseline   ", style="green")
    return _cropped(line.append(f"   {state.best_from}" if state.best_from == "baseline" else state.best_from, "dim"))


def _iteration_line(line: IterationState) -> Text:
    text = Text.assemble(
        f"  iter {line.iteration}  ",
        (f"{line.status:<12}  ", _STATUS_STYLE.get(line.status, "yellow")),
    )
    if line.champion:
        text.append(
            f"{line.champion}  {fmt.duration(line.champion_ms)}  {fmt.speedup(line.speedup, line.low, line.high)}  "
        )
    return text.append(", ".join(line.methods) if line.champion else fmt.one_line(line.reason), style="dim")
