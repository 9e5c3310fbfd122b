"""A run told in stages: one line for each that is over, with what came of it and how long it took.

A fold over the events, so that a run tells the same whether it is watched from the start, from another terminal, or
read the day after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agent import events as ev
from agent.events import AnyEvent
from agent.report import fmt
from agent.report.view import name_of
from agent.state import State
from agent.state_fold import StateFold
from agent.watching.branch_steps import BranchSteps, BranchTracker
from backends.types import Rejected

Tone = Literal["plain", "good", "bad", "warn", "head"]


@dataclass(frozen=True, slots=True)
class Line:
    """One stage that is over.

    Attributes:
        verb: what was done: `Planned`, `Built`.
        text: what came of it.
        tone: how it is coloured; `head` opens an iteration.
        seconds: how long it took; None for what takes no time.
        usd: cost so far; None where a price is unknown.
        at: when, UTC.
        at_s: working time of the run by then.
    """

    verb: str
    text: str
    tone: Tone
    seconds: float | None
    usd: float | None
    at: str
    at_s: float


class Story:
    """Takes events, gives lines; `state`, `branches` and `doing` say where the run stands between them."""

    def __init__(self) -> None:
        self._fold = StateFold()
        self._tracker = BranchTracker()
        self._mark_s = 0.0
        self._iteration_s = 0.0
        self._floor_ms: float | None = None
        self._ablations: list[ev.AblationBuilt] = []
        self._last: AnyEvent | None = None
        self.started: ev.RunStarted | None = None
        self.device: str | None = None

    @property
    def state(self) -> State:
        """The folded state."""
        return self._fold.state

    @property
    def branches(self) -> tuple[BranchSteps, ...]:
        """The branches of the newest iteration."""
        return self._tracker.steps(self.state)

    @property
    def last(self) -> AnyEvent | None:
        """The newest event."""
        return self._last

    def take(self, event: AnyEvent) -> list[Line]:
        """Apply an event; the lines of what is over by it."""
        self._fold.take(event)
        self._tracker.take(event)
        before, self._last = self._last, event
        lines = []
        if self._ablations and not isinstance(event, ev.AblationBuilt | ev.RequestSent | ev.ReplyReceived):
            built, self._ablations = self._ablations, []
            lines.append(self._line(before or event, "Built", _ablations(built)))
        line = self._told(event)
        return [*lines, line] if line is not None else lines

    def _line(self, event: AnyEvent, verb: str, text: str, tone: Tone = "plain", *, timed: bool = True) -> Line:
        seconds = max(0.0, event.elapsed_s - self._mark_s) if timed else None
        if timed:
            self._mark_s = event.elapsed_s
        return Line(verb, fmt.one_line(text), tone, seconds, self.state.cost.usd, event.at, event.elapsed_s)

    def _told(self, event: AnyEvent) -> Line | None:
        if isinstance(event, ev.Noted):
            return self._line(event, "Note", event.text, "warn", timed=False)
        if isinstance(event, ev.RequestFailed):
            step = event.step.removeprefix(f"iter{event.iteration}-")
            return self._line(event, "Unanswered", f"{step} ({event.kind}): {event.message}", "warn")
        if isinstance(event, ev.RunEnded | ev.Paused):
            return self._ended(event)
        return self._opening(event) if self.state.iteration == 0 else self._within(event)

    def _opening(self, event: AnyEvent) -> Line | None:
        if isinstance(event, ev.RunStarted):
            self.started = event
            made_by = " · ".join(filter(None, (event.task, event.backend, event.provider, event.model)))
            return self._line(event, "Climbing", f"{made_by}   {event.run_id}", "head", timed=False)
        if isinstance(event, ev.SessionStarted):
            return self._session(event)
        if isinstance(event, ev.CeilingsMeasured):
            return self._line(event, "Measured", f"ceilings: {_ceilings(event)}")
        if isinstance(event, ev.TaskChecked):
            return self._line(event, "Checked", f"the task: rejects {', '.join(event.check.rejected)}")
        if isinstance(event, ev.FloorFound):
            self._floor_ms = event.floor_ms
        if isinstance(event, ev.ExploitsPlayed):
            return self._line(event, "Defended", f"rejects known exploits: {', '.join(event.rejected)}")
        return self._measured(event)

    def _measured(self, event: AnyEvent) -> Line | None:
        """What is measured of a kernel in no iteration, or in any."""
        if isinstance(event, ev.Evaluated) and event.iteration == 0:
            outcome = event.outcome
            if isinstance(outcome, Rejected) or outcome.timing is None:
                return self._line(event, "Baseline", outcome.reason or "not timed", "bad")
            ms = outcome.timing.median_ms
            over = f", {fmt.speedup(ms / self._floor_ms)} the floor" if self._floor_ms else ""
            return self._line(event, "Baseline" if event.branch == "baseline" else "Best", f"{fmt.duration(ms)}{over}")
        if isinstance(event, ev.AaMeasured):
            return self._line(event, "Noise", f"A/A spread {fmt.percent(event.spread)}")
        if isinstance(event, ev.Sanitized):
            report = event.report
            found = "; ".join(map(str, report.findings))
            clean = f"clean under {', '.join(report.clean)}" if report.clean else "no sanitizer ran"
            kernel = event.kernel.rpartition("/")[2]
            return self._line(event, "Sanitized", f"{kernel}: {found or clean}", "bad" if found else "plain")
        if isinstance(event, ev.Compared) and name_of(event) == "final":
            return self._comparison(event, "best over baseline")
        return None

    def _session(self, event: ev.SessionStarted) -> Line:
        device = event.environment.gpu or event.environment.device
        self.device = device.name
        self._mark_s = event.elapsed_s if event.key != "0" else self._mark_s
        return self._line(event, "Machine" if event.key == "0" else "Resumed", f"on {device.name}")

    def _within(self, event: AnyEvent) -> Line | None:
        if isinstance(event, ev.SessionStarted):
            return self._session(event)
        if isinstance(event, ev.RooflineRecorded):
            return self._head(event)
        if isinstance(event, ev.PlanDecided):
            if event.plan is None:
                return self._line(event, "Unplanned", "; ".join(event.problems), "bad")
            return self._line(event, "Planned", ", ".join(event.plan.method_ids))
        if isinstance(event, ev.AblationBuilt):
            self._ablations.append(event)
            return None
        if isinstance(event, ev.MachineCodeChecked):
            found = ", ".join(f"{p.method} {_presence(p.verdict)}" for p in event.presence)
            return self._line(event, "Checked", f"machine code: {found}") if found else None
        if isinstance(event, ev.Compared) and name_of(event).endswith("/champion"):
            label = event.b.rpartition("/")[2]
            return self._comparison(event, f"{label} over {'baseline' if event.a == 'baseline' else 'the best'}")
        if isinstance(event, ev.Attributed) and event.rows:
            rows = "; ".join(f"{r.method} {fmt.difference(r.attribution_ms)}" for r in event.rows)
            return self._line(event, "Attributed", rows)
        if isinstance(event, ev.Remembered) and event.lessons:
            return self._line(event, "Learned", event.lessons[0])
        if isinstance(event, ev.IterationEnded):
            return self._iteration_ended(event)
        return self._branch_stage(event) or self._measured(event)

    def _branch_stage(self, event: AnyEvent) -> Line | None:
        """Written, built, timed: told when the last branch of the iteration is."""
        if isinstance(event, ev.BranchesBuilt):
            failed = sorted(name for name, seconds in event.seconds.items() if seconds is None)
            but = f", {', '.join(failed)} not" if failed else ""
            return self._line(event, "Built", f"{_of(len(event.seconds) - len(failed), len(event.seconds))}{but}")
        if not isinstance(event, ev.BranchWritten | ev.Evaluated):
            return None
        steps = self.branches
        if isinstance(event, ev.BranchWritten):
            if any(s.state is None or s.doing.startswith(("asking", "repair")) for s in steps):
                return None
            good = [s for s in steps if s.marks[0] == "good"]
            verb = "Repaired" if "/repair" in event.key else "Wrote"
            return self._line(event, verb, _of(len(good), len(steps)), "plain" if good else "bad")
        if event.iteration and not any("busy" in s.marks for s in steps):
            return self._timed(event, steps)
        return None

    def _timed(self, event: ev.Evaluated, steps: Sequence[BranchSteps]) -> Line:
        right = [s.state for s in steps if s.state and s.state.status == "pass" and s.state.median_ms]
        if not right:
            reason = next((s.state.reason for s in steps if s.state and s.state.reason), None)
            return self._line(event, "Timed", f"none is right{f': {reason}' if reason else ''}", "bad")
        best = min(right, key=lambda b: b.median_ms or 0.0)
        base = self.state.baseline_ms
        ratio = f", {fmt.speedup(base / best.median_ms)} over baseline" if base and best.median_ms else ""
        return self._line(
            event, "Timed", f"{_of(len(right), len(steps))} right; {best.name} {fmt.duration(best.median_ms)}{ratio}"
        )

    def _head(self, event: ev.RooflineRecorded) -> Line:
        self._iteration_s = event.elapsed_s
        h = event.headroom
        over = f", {fmt.speedup(h.time_ms / h.floor_ms)} the floor" if h.floor_ms else ""
        leads = "near peak" if h.near_peak else f"{h.bound} leads"
        return self._line(
            event, "Iteration", f"{event.iteration}: best {fmt.duration(h.time_ms)}, {leads}{over}", "head"
        )

    def _comparison(self, event: ev.Compared, what: str) -> Line:
        c = event.outcome
        if isinstance(c, Rejected):
            return self._line(event, "Compared", f"{what}: {c.reason}", "bad")
        return self._line(event, "Compared", f"{fmt.speedup(c.speedup, c.low, c.high)} {what}")

    def _iteration_ended(self, event: ev.IterationEnded) -> Line:
        known = next((i for i in self.state.iterations if i.iteration == event.iteration), None)
        verbs: dict[str, tuple[str, Tone]] = {
            "accepted": ("Accepted", "good"),
            "not-accepted": ("Kept out", "plain"),
            "failed": ("Failed", "bad"),
            "stopped": ("Stopped", "warn"),
        }
        verb, tone = verbs[event.status]
        text = event.reason
        if known is not None and known.champion and event.status == "accepted":
            text = f"{known.champion} {fmt.duration(known.champion_ms)}, {event.reason}"
        took = event.elapsed_s - self._iteration_s
        self._mark_s = event.elapsed_s
        line = self._line(event, verb, text, tone, timed=False)
        return Line(line.verb, line.text, line.tone, took, line.usd, line.at, line.at_s)

    def _ended(self, event: ev.RunEnded | ev.Paused) -> Line:
        state = self.state
        if isinstance(event, ev.Paused):
            line = self._line(event, event.status.capitalize(), event.reason, "warn", timed=False)
        else:
            gain = fmt.speedup(state.speedup, *(state.speedup_interval or (None, None)))
            text = f"({event.stop_reason}) {gain} over baseline, best from {state.best_from}"
            note = f": {event.note}" if event.note else ""
            line = self._line(event, "Finished", text + note, "good", timed=False)
        return Line(line.verb, line.text, line.tone, event.elapsed_s, line.usd, line.at, line.at_s)


def _of(some: int, total: int) -> str:
    noun = "branch" if total == 1 else "branches"
    return f"{total} {noun}" if some == total else f"{some} of {total} {noun}"


def _presence(verdict: str) -> str:
    return {"verified": "found", "none": "leaves none"}.get(verdict, verdict)


def _ablations(built: Sequence[ev.AblationBuilt]) -> str:
    good = sum(b.rejected is None for b in built)
    noun = "ablation" if len(built) == 1 else "ablations"
    return f"{len(built)} {noun}" if good == len(built) else f"{good} of {len(built)} {noun}"


def _ceilings(event: ev.CeilingsMeasured) -> str:
    rates = [f"{kind} {fmt.giga(rate, 'GFLOP/s')}" for kind, rate in event.ceilings.flops.items()][:1]
    return ", ".join([f"copy {fmt.giga(event.ceilings.copy_bytes, 'GB/s')}", *rates])
