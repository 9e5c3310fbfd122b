"""The state of a run as a fold over its events: one handler for each kind that changes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from agent import events as ev
from agent.elsewhere import comparable_ms
from agent.events import AnyEvent
from agent.llm.types import Usage
from agent.model_costs import ModelCosts, branch_of
from agent.state import BranchState, Cost, FrontierEntry, IterationState, MethodState, RooflineState, State
from backends.types import Rejected


def fold(events: Iterable[AnyEvent]) -> State:
    """The state after these events."""
    builder = StateFold()
    for event in events:
        builder.take(event)
    return builder.state


class StateFold:
    """The state after each event it took; `_on_<type>` handles the types that change it."""

    def __init__(self) -> None:
        self.state = State()
        self._open: dict[str, ev.RequestSent] = {}
        self._costs = ModelCosts()
        self._asked: dict[tuple[int, str], ev.RequestSent] = {}
        self._suffix = ""
        self._device = ""
        self._ended: set[int] = set()
        self._planned: set[int] = set()
        self._best_at_end: dict[str, object] = {}

    def take(self, event: AnyEvent) -> None:
        """Apply the next event."""
        handler = getattr(self, f"_on_{event.type}", None)
        if handler is not None:
            handler(event)
        accepted = [line.iteration for line in self.state.iterations if line.status == "accepted"]
        self._set(elapsed_s=event.elapsed_s, models=self._costs.rows(self.state.branches, accepted))

    def _set(self, **changes: object) -> None:
        self.state = self.state.model_copy(update=changes)

    def _on_run_started(self, event: ev.RunStarted) -> None:
        self._suffix = event.suffix
        self._set(run_id=event.run_id, version=event.version, task=event.task, backend=event.backend, noise=event.noise)

    def _on_session_started(self, event: ev.SessionStarted) -> None:
        self._set(status="running", stop_reason=None)
        if self._device not in ("", event.device_id):
            self._forget_unended()
        self._device = event.device_id
        # A batch goes on while no session runs; anything else that was in flight is lost.
        for key in [key for key, sent in self._open.items() if sent.batch is None]:
            self._charge(self._open.pop(key), None)

    def _on_task_checked(self, event: ev.TaskChecked) -> None:
        self._set(reference_ms=event.check.reference_ms, notes=(*self.state.notes, *event.notes))

    def _on_aa_measured(self, event: ev.AaMeasured) -> None:
        self._set(aa_spread=event.spread)

    def _on_noted(self, event: ev.Noted) -> None:
        self._set(notes=(*self.state.notes, event.text))

    def _on_profiled(self, event: ev.Profiled) -> None:
        if event.profile.level == "degraded":
            self._set(degraded=event.profile.note)

    def _on_evaluated(self, event: ev.Evaluated) -> None:
        outcome = event.outcome
        timing = None if isinstance(outcome, Rejected) else outcome.timing
        if event.iteration == 0:
            if timing is not None and event.branch == "baseline":
                self._set(baseline_ms=timing.median_ms)
            if timing is not None and (event.branch == "best" or self.state.best_from == "baseline"):
                self._set(best_ms=timing.median_ms)
            if self.state.best_file is None:
                self._set(best_file=f"baseline/kernel{self._suffix}")
            return
        status = "rejected" if isinstance(outcome, Rejected) else outcome.verdict
        self._branch(
            event.iteration,
            event.branch,
            status=status,
            reason=outcome.reason,
            median_ms=None if isinstance(outcome, Rejected) else comparable_ms(outcome, event.elsewhere),
        )

    def _on_task_retried(self, event: ev.TaskRetried) -> None:
        self._set(retries=self.state.retries + 1)

    def _on_branch_written(self, event: ev.BranchWritten) -> None:
        known = self._find_branch(event.iteration, event.branch)
        sent = self._asked.get((event.iteration, event.branch))
        model = event.model or (sent.model if sent else "")
        changes: dict[str, object] = {"status": "written", "reason": None, "model": model}
        self._costs.written((event.iteration, event.branch), sent, model)
        changes |= {
            "provider": sent.provider if sent else "",
            "usd": self._costs.branch_usd((event.iteration, event.branch)),
        }
        if event.rejected is not None:
            changes.update(status="rejected", reason=f"{event.rejected.stage}: {event.rejected.reason}")
        if known is not None and "/repair" in event.key:
            changes["repairs"] = known.repairs + 1
        self._branch(event.iteration, event.branch, **changes)

    def _on_champion_decided(self, event: ev.ChampionDecided) -> None:
        champion = self._find_branch(event.iteration, event.branch)
        if champion is None or champion.median_ms is None:
            return
        frontier = list(self.state.frontier)
        for branch in self.state.branches:
            if branch.iteration != event.iteration or branch.status != "pass" or branch.median_ms is None:
                continue
            gap = branch.median_ms / champion.median_ms - 1
            self._branch(event.iteration, branch.name, gap=gap, champion=branch.name == event.branch)
            if branch.name != event.branch:
                frontier.append(
                    FrontierEntry(iteration=event.iteration, name=branch.name, median_ms=branch.median_ms, gap=gap)
                )
        self._set(frontier=tuple(frontier))
        if event.accepted:
            self._set(
                best_ms=champion.median_ms,
                best_file=f"iterv{event.iteration}/kernel{self._suffix}",
                best_from=f"iteration {event.iteration}, {event.branch}",
            )

    def _on_compared(self, event: ev.Compared) -> None:
        comparison = event.outcome
        if isinstance(comparison, Rejected):
            return
        name = event.key.partition("@")[0]  # after a move to another device, keys carry which one
        if name == "final":
            interval = (comparison.low, comparison.high)
            over_reference = self.state.reference_ms and self.state.reference_ms / comparison.b_ms
            self._set(
                speedup=comparison.speedup,
                speedup_interval=interval,
                best_ms=comparison.b_ms,
                speedup_over_reference=over_reference,
            )
        elif name.endswith("/champion"):
            line = self._iteration(event.iteration)
            changes = {
                "champion": event.b.rpartition("/")[2],
                "champion_ms": comparison.b_ms,
                "speedup": comparison.speedup,
                "low": comparison.low,
                "high": comparison.high,
            }
            self._put_iteration(line.model_copy(update=changes))

    def _on_roofline_recorded(self, event: ev.RooflineRecorded) -> None:
        headroom = event.headroom
        entry = RooflineState(
            iteration=event.iteration,
            time_ms=headroom.time_ms,
            floor_ms=headroom.floor_ms,
            gap=headroom.gap,
            compute=headroom.compute,
            memory=headroom.memory,
            latency=headroom.latency,
            near_peak=headroom.near_peak,
            bound=headroom.bound,
        )
        self._set(roofline_history=(*self.state.roofline_history, entry), iteration=event.iteration)

    def _on_plan_decided(self, event: ev.PlanDecided) -> None:
        self._planned.add(event.iteration)
        methods = event.plan.method_ids if event.plan else ()
        self._put_iteration(self._iteration(event.iteration).model_copy(update={"methods": methods}))

    def _on_attributed(self, event: ev.Attributed) -> None:
        for row in event.rows:
            name = f"{row.method_class}_methods"
            line = MethodState(iteration=event.iteration, **row.model_dump())
            self._set(**{name: (*getattr(self.state, name), line)})

    def _on_remembered(self, event: ev.Remembered) -> None:
        self._set(lessons=(*self.state.lessons, *event.lessons))

    def _on_iteration_ended(self, event: ev.IterationEnded) -> None:
        line = self._iteration(event.iteration)
        self._put_iteration(line.model_copy(update={"status": event.status, "reason": event.reason}))
        self._ended.add(event.iteration)
        self._best_at_end = {name: getattr(self.state, name) for name in ("best_ms", "best_file", "best_from")}

    def _on_run_ended(self, event: ev.RunEnded) -> None:
        notes = (*self.state.notes, event.note) if event.note else self.state.notes
        self._set(status="finished", stop_reason=event.stop_reason, best_file=f"best/kernel{self._suffix}", notes=notes)

    def _on_paused(self, event: ev.Paused) -> None:
        self._set(status=event.status, stop_reason=event.reason)

    def _forget_unended(self) -> None:
        """On another device an iteration that had not ended is measured anew: its lines must not stand twice."""
        lists = ("frontier", *(f"{c}_methods" for c in get_args(ev.MethodClass)))
        kept = {name: tuple(x for x in getattr(self.state, name) if x.iteration in self._ended) for name in lists}
        # A plan that was decided stays, and so does the evidence it rests on.
        known = self._ended | self._planned
        kept["roofline_history"] = tuple(x for x in self.state.roofline_history if x.iteration in known)
        baseline = {"best_ms": None, "best_file": f"baseline/kernel{self._suffix}", "best_from": "baseline"}
        self._set(**kept, **(self._best_at_end or baseline))

    def _on_request_sent(self, event: ev.RequestSent) -> None:
        if event.key in self._open:
            self._charge(self._open[event.key], None)
        self._open[event.key] = event
        branch = branch_of(event)
        if branch is not None:
            self._asked[branch] = event

    def _on_reply_received(self, event: ev.ReplyReceived) -> None:
        sent = self._open.pop(event.key, None)
        if sent is not None:
            self._charge(sent, event)

    def _on_request_failed(self, event: ev.RequestFailed) -> None:
        sent = self._open.pop(event.step, None)
        if sent is not None and event.usage != Usage():
            self._add_cost(sent, event.usage, event.usd)
        elif sent is not None and event.usd is not None:
            self._add_cost(sent, Usage(), event.usd)

    def _on_request_retried(self, event: ev.RequestRetried) -> None:
        sent = self._open.get(event.step)
        if sent is not None:
            self._add_cost(sent, event.usage, event.usd, retried=1)

    def _on_batch_ended(self, event: ev.BatchEnded) -> None:
        for key in [key for key, sent in self._open.items() if sent.batch == event.key]:
            self._charge(self._open.pop(key), None)

    def _charge(self, sent: ev.RequestSent, received: ev.ReplyReceived | None) -> None:
        """A reply at its cost. One lost in flight, or whose cost is not said, at the most it can have cost."""
        reply = received.reply if received else None
        model = reply.model if reply else ""
        if reply is None or (reply.usd is None and None in (reply.usage.input, reply.usage.output)):
            self._add_cost(sent, Usage(output=sent.worst_tokens), sent.worst_usd, model)
        else:
            self._add_cost(sent, reply.usage, reply.usd, model)

    def _add_cost(
        self, sent: ev.RequestSent, usage: Usage, usd: float | None, model: str = "", retried: int = 0
    ) -> None:
        self._costs.charge(sent, usd, model, calls=1 - retried)
        cost, purpose = self.state.cost, sent.purpose
        tokens = {kind: cost.tokens[kind] + (getattr(usage, kind) or 0) for kind in cost.tokens}
        by_purpose = dict(cost.by_purpose)
        by_purpose[purpose] = by_purpose.get(purpose, 0.0) + (usd or 0.0)
        total = None if usd is None or cost.usd is None else cost.usd + usd
        calls, retried = cost.calls + 1 - retried, cost.retried + retried
        self._set(cost=Cost(usd=total, tokens=tokens, calls=calls, retried=retried, by_purpose=by_purpose))

    def _find_branch(self, iteration: int, name: str) -> BranchState | None:
        return next((b for b in self.state.branches if (b.iteration, b.name) == (iteration, name)), None)

    def _branch(self, iteration: int, name: str, **changes: object) -> None:
        known = self._find_branch(iteration, name)
        if known is None:
            fresh = BranchState(iteration=iteration, name=name, model="", status="written").model_copy(update=changes)
            self._set(branches=(*self.state.branches, fresh))
            return
        changed = known.model_copy(update=changes)
        self._set(branches=tuple(changed if b is known else b for b in self.state.branches))

    def _iteration(self, number: int) -> IterationState:
        blank = IterationState(
            iteration=number,
            status="running",
            reason="",
            methods=(),
            champion=None,
            champion_ms=None,
            speedup=None,
            low=None,
            high=None,
        )
        return next((i for i in self.state.iterations if i.iteration == number), blank)

    def _put_iteration(self, line: IterationState) -> None:
        others = [i for i in self.state.iterations if i.iteration != line.iteration]
        self._set(iterations=(*others, line))
