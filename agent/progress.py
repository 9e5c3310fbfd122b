"""What a person sees while a run works: a live view on a terminal, plain timestamped lines anywhere else.

Both write to stderr, both are fed by the journal, and neither is read by anything.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Protocol, TextIO

from agent import events as ev
from agent.elsewhere import comparable_ms
from agent.events import AnyEvent
from agent.events_batch import describe_batch
from agent.report import fmt
from agent.report.view import name_of
from agent.watching.limits import Limits
from backends.types import Rejected

if TYPE_CHECKING:
    from agent.watching.terminal import LiveProgress


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


def make_progress(
    stream: TextIO, iterations: int, minutes: float | None = None, usd: float | None = None
) -> LiveProgress | PlainProgress:
    """The live view where `stream` is a terminal that can show it, else plain lines.

    Args:
        stream: stderr; stdout belongs to `--json`.
        iterations: how many the run may take.
        minutes: how long it may work; None without a limit.
        usd: what it may spend; None without a limit.
    """
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return PlainProgress(stream)
    from rich.console import Console

    from agent.watching.terminal import LiveProgress

    return LiveProgress(Console(file=stream, highlight=False), Limits(iterations, minutes, usd))


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
    if isinstance(event, ev.BatchSent | ev.BatchAccepted | ev.BatchEnded):
        return fmt.one_line(describe_batch(event))
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
    if isinstance(event, ev.TaskRetried):
        return fmt.one_line(f"{event.task} lost at {event.place} and tried again: {event.reason}")
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
    median_ms = comparable_ms(outcome, event.elsewhere)
    where = "" if event.elsewhere is None else f"by what it took on {event.elsewhere.device}"
    time_text = "" if median_ms is None else fmt.duration(median_ms)
    return " ".join(filter(None, (outcome.verdict, time_text, where, outcome.reason and f"({outcome.reason})")))
