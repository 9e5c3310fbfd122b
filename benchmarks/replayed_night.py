"""A night on a measured landscape: attempts are looked up, and everything that learns from them is the real thing.

An attempt is a plan of one branch, applied to the baseline. What the landscape holds of it goes the way of a run's own
measurements: `attribute` makes the table, `remember_attempt` or `remember_failure` the records, a `Store` keeps them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property, lru_cache
from pathlib import Path
from types import TracebackType
from typing import Literal, cast

from landscape_data import BASELINE, Landscape, Point, Refusal, between
from landscape_sources import Wanted

from agent import events as ev
from agent.asking import Asker
from agent.budget import Budget
from agent.executors.types import Executor
from agent.journal import Journal
from agent.machine import Machine
from agent.plan import Analysis, BranchVariant, Plan, PlannedMethod, PlanRules, Trigger, review_plan
from agent.progress import make_progress
from agent.run import Run
from agent.stages.ablation import Ablation
from agent.stages.attribution import attribute
from agent.stages.learning import remember_attempt, remember_failure
from agent.stages.switches import ALL
from agent.task import Task
from backends.registry import get_backend
from backends.types import BuildSpec, Rejected, Signature
from memory import types as memory_types
from memory.fingerprint import fingerprint
from memory.recall import blocked_by, recall
from memory.store import Store
from memory.types import Recall, Scope, StoredRecord
from memory.wire import entry_of
from profiling.device import cpu_facts
from profiling.findings import AXES, Comparison, Evaluation, MethodPresence, Metric, Profile
from profiling.types import Problem
from prompts.catalogue import load_catalogue

Blocks = Literal["validator", "wide"]

_METRIC = Metric("time", 1.0, "ms", "compute", "low", 1.0, "what a plan must cite something of")
_PROFILE = Profile("counted", "degraded", (_METRIC,), "a replayed landscape has no profile")


@dataclass(frozen=True, slots=True, eq=False)
class Strategy:
    """What a proposer may propose: a landscape's point, and the plan that stands for it.

    Attributes:
        point: of the landscape.
        plan: its methods; where there are several kernels, which one is a parameter of each of them.
    """

    point: Point
    plan: Plan

    @property
    def methods(self) -> tuple[str, ...]:
        """Their ids."""
        return self.plan.method_ids

    def fingerprint(self, backend: str) -> str:
        """What memory knows it by."""
        return fingerprint(backend, self.plan.strategy)

    def alone(self, backend: str) -> Iterator[str]:
        """What memory knows each of its methods by."""
        for method in self.plan.methods:
            yield fingerprint(backend, memory_types.Strategy((method.id,), {method.id: dict(method.parameters)}))


class Space:
    """All strategies of a landscape whose outcome is known, in a fixed order."""

    def __init__(self, landscape: Landscape) -> None:
        self.landscape = landscape
        self.scope = Scope(landscape.family, landscape.backend, landscape.arch, landscape.shape_class)
        known = [p for p in landscape.points if p.methods and landscape.outcome(p) is not None]
        self.strategies = tuple(Strategy(point, _plan(landscape, point)) for point in known)
        self.places = {s.fingerprint(landscape.backend): i for i, s in enumerate(self.strategies)}

    def speedup(self, strategy: Strategy) -> float:
        """Over the baseline; 0 for what was refused."""
        outcome = self.landscape.outcome(strategy.point)
        return outcome.speedup if isinstance(outcome, Comparison) else 0.0

    @cached_property
    def best(self) -> float:
        """The best speedup there is."""
        return max(self.speedup(s) for s in self.strategies)

    def failed(self, strategy: Strategy) -> bool:
        """Whether it was refused, or its best guess is no gain beyond the noise."""
        return self.speedup(strategy) <= 1 + self.landscape.smallest_gain


def _plan(landscape: Landscape, point: Point) -> Plan:
    kernels = {kernel.name: kernel for kernel in landscape.identity.kernels}
    planned = kernels[point.kernel].parameters
    variant: Mapping[str, str] = {"variant": point.kernel} if len(kernels) > 1 else {}
    methods = tuple(
        PlannedMethod(
            id=method,
            axis=next(axis for axis in AXES if method.startswith(f"{axis}.")),
            why="drawn",
            triggers=(Trigger(metric=_METRIC.name, value=_METRIC.value),),
            trigger_strength=0.5,
            parameters={**planned.get(method, {}), **variant},
            new=not load_catalogue().known(method),
            description="of a recorded plan",
        )
        for method in point.methods
    )
    nothing = Analysis(metrics="", reasoning="", risks="")
    return Plan(analysis=nothing, methods=methods, branches=(BranchVariant(name="b0", variant=""),))


class Night:
    """A run on a landscape, in a folder of its own and with a memory that it may share. Use as a context."""

    def __init__(self, space: Space, name: str, folder: Path, store: Store) -> None:
        self.name = name
        self._space = space
        self._attempts = 0
        self._other_problems: dict[Strategy, int] = {}
        path = folder / name
        path.mkdir(parents=True)
        self._journal = Journal(path)
        identity = space.landscape.identity
        task = _task(space.landscape.backend, identity.config, identity.overrides)
        self._run = Run(
            task=task,
            folder=path,
            cache=path,
            journal=self._journal,
            lab=None,
            machine=Machine(cpu_facts(), None),
            catalogue=load_catalogue(),
            store=store,
            scope=space.scope,
            asker=cast(Asker, None),  # no model is asked
            executor=cast(Executor, None),  # nothing is built
            budget=Budget(task.config.budget),
            progress=make_progress(io.StringIO(), 1),
            versions=identity.versions,
        )
        self._journal.append(
            ev.AaMeasured(key="aa", spread=space.landscape.smallest_gain, median_ms=1.0),
        )

    def __enter__(self) -> Night:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run.close()
        self._journal.close()

    def recall(self) -> Recall:
        """What a prompt would be told now."""
        return recall(self._run.store.query(), self._run.scope, now=datetime.now(timezone.utc))

    def refused(self, strategy: Strategy, recalled: Recall, blocks: Blocks) -> bool:
        """Whether memory forbids it: as the validator of plans does, or (`wide`) for one of its methods too."""
        if blocks == "wide" and any(blocked_by(recalled, f) for f in strategy.alone(self._space.scope.backend)):
            return True
        found = review_plan(strategy.plan, self._rules(recalled), load_catalogue()).problems
        if strategy not in self._other_problems:
            bare = review_plan(strategy.plan, self._rules(Recall()), load_catalogue()).problems
            self._other_problems[strategy] = len(bare)
        return len(found) > self._other_problems[strategy]

    def attempt(self, strategy: Strategy) -> None:
        """Look a strategy's outcome up and learn from it, as an iteration does."""
        self._attempts += 1
        number, plan = self._attempts, strategy.plan
        landscape = self._space.landscape
        outcome = landscape.outcome(strategy.point)
        assert outcome is not None
        if isinstance(outcome, Refusal):
            fault: Evaluation | Rejected = Rejected(outcome.stage, outcome.reason)
            if outcome.stage == "verify":
                fault = Evaluation("fail", outcome.reason, (), None)
            self._evaluated(number, fault)
            remember_failure(self._run, number, plan)
            return
        self._evaluated(number, Evaluation("pass", None, (), None))
        ablations = self._ablations(number, strategy.point)
        presence = [MethodPresence(m, strategy.point.presence[m], "as recorded") for m in strategy.methods]
        axes = {m.id: m.axis for m in plan.methods}
        rows, audit = attribute(axes, presence, ablations, outcome, self._run.smallest_gain)
        attributed = ev.Attributed(
            key=f"iter{number}", iteration=number, gain_ms=outcome.delta_ms, rows=rows, audit=audit
        )
        remember_attempt(self._run, number, plan, outcome, attributed, ablations)

    def _evaluated(self, number: int, outcome: Evaluation | Rejected) -> None:
        key = f"iter{number}/b0"
        self._journal.append(ev.Evaluated(key=key, iteration=number, branch="b0", build_s=None, outcome=outcome))

    def _ablations(self, number: int, point: Point) -> dict[str, Ablation]:
        """The strategy without each of its methods, and the kernel with all switches off against the baseline."""
        landscape = self._space.landscape
        whole = landscape.outcome(point)
        assert isinstance(whole, Comparison)
        unity = Comparison(1.0, 1.0, 1.0, whole.a_ms, whole.a_ms, 0.0, 0.0, 0.0, ())
        found = {}
        for name in (*point.methods, ALL):
            off = frozenset() if name == ALL else frozenset(point.methods) - {name}
            without = landscape.by_place.get((point.kernel, off))
            outcome = None if without is None else landscape.outcome(without)
            if without is None or outcome is None:
                continue
            refused = Rejected(outcome.stage, outcome.reason) if isinstance(outcome, Refusal) else None
            compared = BASELINE if name == ALL else point.code
            built = ev.AblationBuilt(
                key=f"iter{number}/{name}",
                iteration=number,
                method=name,
                form="switch",
                source=None,
                code_differs=without.code != compared,
                rejected=refused if refused is not None and refused.stage != "verify" else None,
            )
            comparison: Comparison | Rejected | None = refused
            if isinstance(outcome, Comparison) and (name == ALL or built.code_differs):
                comparison = between(outcome, unity if name == ALL else whole)
            found[name] = Ablation(built, comparison)
        return found

    def _rules(self, recalled: Recall) -> PlanRules:
        return PlanRules(
            backend=self._space.scope.backend,
            arch=self._space.scope.arch,
            features=(),
            methods=99,
            axis_budget=dict.fromkeys(AXES, 99),
            branches=1,
            profile=_PROFILE,
            recall=recalled,
            policy="advisory",
        )


@lru_cache
def _task(backend: str, config: str, overrides: tuple[str, ...]) -> Task:
    """A task that nothing will be built or measured of, so that a GPU's task can be replayed anywhere."""
    loaded = Wanted(config=config, set=overrides, kernels=()).load()
    return Task(
        config=loaded,
        backend=get_backend(backend),
        baseline=loaded.task.baseline,
        signature=Signature(()),
        problem=cast(Problem, None),
        spec=BuildSpec(),
        notes=(),
    )


def copy_records(records: Sequence[StoredRecord], store: Store, created: datetime) -> None:
    """Write another memory's records into a store, as of another time."""
    store.restore([entry_of(stored.record, created) for stored in records])
