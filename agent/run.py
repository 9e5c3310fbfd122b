"""One run in hand: its parts, wired together, and the small questions that every stage asks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeVar

from agent.ahead import Ahead, Source, build_all
from agent.asking import Asker
from agent.budget import Budget
from agent.config import SearchSection
from agent.errors import Interrupted, UnfitEnvironment
from agent.events import (
    AaMeasured,
    BranchWritten,
    CeilingsMeasured,
    Compared,
    Event,
    IterationEnded,
    Noted,
    SessionStarted,
    TaskChecked,
    TaskRetried,
)
from agent.executors.types import Executor
from agent.journal import Journal
from agent.machine import Machine
from agent.machine_code import MachineCode
from agent.paths import iteration_folder
from agent.progress import Progress
from agent.task import Task, build_candidate, tune
from backends.types import BuildSpec, Built, Rejected
from memory.store import Store
from memory.types import Scope
from profiling.device import DeviceFacts
from profiling.findings import Ceilings, Comparison, Work
from profiling.gpu_device import GpuFacts
from profiling.harness.harness import Harness
from profiling.types import Tolerance
from prompts.catalogue import Catalogue

_E = TypeVar("_E", bound=Event)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that built and was found right.

    Attributes:
        label: `baseline`, `iter1/b0`.
        source: its text.
        built: its build.
        median_ms: its time.
        epoch: which device it was timed on, counted over the run.
        at_home: whether that was the run's own device; elsewhere `median_ms` is scaled, and only ranks.
    """

    label: str
    source: str
    built: Built
    median_ms: float
    epoch: int
    at_home: bool = True


@dataclass(frozen=True, slots=True)
class Match:
    """Two kernels to be compared, a and b: what each is called, and its build."""

    a: tuple[str, Built]
    b: tuple[str, Built]


class StopRun(Exception):
    """A normal end before the last iteration."""

    def __init__(self, reason: Literal["near-peak", "budget", "patience"], note: str) -> None:
        super().__init__(note)
        self.reason: Literal["near-peak", "budget", "patience"] = reason


@dataclass(slots=True)
class Run:
    """Everything a stage needs. `folder` is the run folder, `cache` holds builds that any run may share.

    `lab` measures; it is None on a machine without the run's GPU, where a run goes only as far as answers carry it.
    """

    task: Task
    folder: Path
    cache: Path
    journal: Journal
    lab: Harness | None
    machine: Machine
    catalogue: Catalogue
    store: Store
    scope: Scope
    asker: Asker
    executor: Executor
    budget: Budget
    progress: Progress
    versions: Mapping[str, str]
    stopped: threading.Event = field(default_factory=threading.Event)
    _best: Kernel | None = None
    _unprepared: Callable[[Harness], object] | None = None
    code: MachineCode = field(init=False)
    _built: dict[Path, Built | Rejected] = field(init=False, default_factory=dict)
    _ahead: Ahead = field(init=False)

    def __post_init__(self) -> None:
        self.code = MachineCode(self.task.backend)
        cores = self.executor.spare_cores if self.gpu is not None else ()
        self._ahead = Ahead(self._build_ahead, self.code.device, cores)

    def close(self) -> None:
        """Give back what was begun and is not needed."""
        self._ahead.close()

    @property
    def best(self) -> Kernel:
        """The best kernel so far; the baseline until a champion is accepted."""
        if self._best is None:
            raise LookupError("nothing has been measured yet")
        return self._best

    @best.setter
    def best(self, kernel: Kernel) -> None:
        self._best = kernel

    @property
    def search(self) -> SearchSection:
        """The search section of the config."""
        return self.task.config.search

    @property
    def run_id(self) -> str:
        """The run's name."""
        return self.folder.name

    @property
    def harness(self) -> Harness:
        """What measures. Raises UnfitEnvironment: this machine does not have the run's GPU."""
        if self.lab is None:
            raise UnfitEnvironment(
                f"something must be measured, and this machine has no {self.machine.name}: resume the run where it is"
            )
        prepare, self._unprepared = self._unprepared, None
        if prepare is not None:
            prepare(self.lab)
        return self.lab

    def before_measuring(self, prepare: Callable[[Harness], object]) -> None:
        """Have this done before the first measurement of the session: one that has none to make does without."""
        self._unprepared = prepare

    @property
    def device(self) -> DeviceFacts:
        """The host's processor."""
        return self.machine.cpu

    @property
    def gpu(self) -> GpuFacts | None:
        """The GPU that kernels run on, None where they run on the host."""
        return self.machine.gpu

    @property
    def features(self) -> tuple[str, ...]:
        """What machine and task offer a method: the CPU's features, and `multicore` with more than one thread."""
        multicore = ("multicore",) if self.task.config.device.threads > 1 else ()
        return (*self.device.features, *multicore)

    @property
    def language(self) -> str:
        """The word that opens a fenced block of this backend."""
        return self.task.backend.language

    @property
    def output_limit(self) -> int:
        """Tokens that one answer may take."""
        llm = self.task.config.llm
        return llm.max_output_tokens if llm else 0

    @property
    def kernel_file(self) -> str:
        """`kernel.cpp`."""
        return f"kernel{self.task.backend.suffix}"

    @property
    def ceilings(self) -> Ceilings:
        """This run's ceilings. They are measured before any iteration begins."""
        return self._logged(CeilingsMeasured).ceilings

    @property
    def tolerance(self) -> Tolerance:
        """The tolerance in force."""
        found = self._logged(TaskChecked).check.tolerance
        if found is None:
            raise LookupError("the task has no reference, so no tolerance")
        return found

    @property
    def work(self) -> Work:
        """What one call must do."""
        return self._logged(TaskChecked).work

    @property
    def smallest_gain(self) -> float:
        """The gain below which nothing is claimed: the larger of `noise` and the A/A spread."""
        return max([self.search.noise, *(e.spread for e in self.journal.all(AaMeasured)[-1:])])

    @property
    def epoch(self) -> int:
        """How many times the run has moved to another device. Times are never compared across epochs."""
        return self._epoch_before(len(self.journal.events))

    def key(self, iteration: int, name: str) -> str:
        """The key of a measurement: what was measured on a device that is gone is measured anew.

        An iteration that has ended keeps its own device's numbers; 0 stands for what lies outside the iterations.
        """
        epoch = self.epoch_of(iteration)
        where = f"iter{iteration}/{name}" if iteration else name
        return f"{where}@{epoch}" if epoch else where

    def epoch_of(self, iteration: int) -> int:
        """The epoch whose device an iteration's numbers come from."""
        ended = self.journal.find(IterationEnded, f"iter{iteration}")
        return self.epoch if ended is None else self._epoch_before(ended.seq)

    def epoch_of_event(self, event: Event) -> int:
        """The epoch in which an event was logged."""
        return self._epoch_before(event.seq)

    def _epoch_before(self, seq: int) -> int:
        devices = [e.device_id for e in self.journal.all(SessionStarted) if e.seq < seq]
        return sum(a != b for a, b in pairwise(devices))

    def check_interrupted(self) -> None:
        """Raise Interrupted if SIGINT or SIGTERM came."""
        if self.stopped.is_set():
            raise Interrupted("stopped by a signal")

    def checkpoint(self) -> None:
        """Between two steps of an iteration: stop here if asked to, or if the time is used up.

        Raises:
            Interrupted: SIGINT or SIGTERM came.
            BudgetExhausted: the minutes are used up.
        """
        self.check_interrupted()
        self.budget.check_time(self.journal.elapsed_s)

    def branch_folder(self, branch: BranchWritten) -> Path:
        """Where a branch's kernel, build log and times lie."""
        name = branch.key.removeprefix(f"iter{branch.iteration}/")
        return iteration_folder(self.folder, branch.iteration) / "branches" / name

    def note(self, key: str, text: str) -> None:
        """Log something a person should know in the morning, once."""
        self.journal.once(Noted, key, lambda: Noted(key=key, text=text))

    def compare_code(self, builds: Sequence[Built], whole: Built) -> None:
        """Have it at hand how each differs from `whole` in machine code, looked up side by side."""
        with ThreadPoolExecutor(max_workers=max(1, self.device.usable_cores)) as pool:
            list(pool.map(lambda built: self.code.differs(built, whole), builds))

    def build(self, source: Path) -> Built | Rejected:
        """Build the baseline, or what was accepted before; once, since a preprocessor runs to find even a kept build.

        Raises:
            ToolchainError: the compiler is missing or broken.
        """
        if source not in self._built:
            self._built[source] = self._tuned(self.task.backend.build(source, self.task.spec, self.cache))
        return self._built[source]

    def build_candidates(self, sources: Sequence[Source]) -> list[Built | Rejected]:
        """Build kernels that a model wrote, in parallel, in order, each held to the task's signature and libraries."""
        builds = build_all(sources, self._ahead, self.executor)
        self.log_troubles()
        return [self._tuned(built) for built in builds]

    def log_troubles(self) -> None:
        """Log what was lost on the way and done again, and which places are out."""
        for trouble in self.executor.troubles():
            if trouble.task is None:
                self.note(f"out/{trouble.place}", f"{trouble.place} is left out: {trouble.reason}")
                continue
            key = str(len(self.journal.all(TaskRetried)))
            self.journal.append(TaskRetried(key=key, task=trouble.task, place=trouble.place, reason=trouble.reason))

    def build_ahead(self, sources: Sequence[Source]) -> None:
        """Begin to build and to disassemble these where a GPU is measured on, and end what else was begun so."""
        self._ahead.start(sources)

    def disassemble_ahead(self, builds: Sequence[Built]) -> None:
        """Begin with the listings of these, beside what is measured on a GPU."""
        self._ahead.look(builds)

    def prepare_workers(self, branches: int, methods: int) -> None:
        """Have workers open their GPU now, beside the compilers.

        Args:
            branches: to be evaluated, wherever there is a place.
            methods: of the plan. The sitting afterwards takes the best kernel, the champion, it without each method and
                it without any.
        """
        sitting = 2 + (methods + 1 if self.search.ablate else 0)
        self.executor.open_workers(branches, at_home=sitting * self.task.config.measure.pairs)

    def _build_ahead(self, source: Path, spec: BuildSpec) -> Built | Rejected:
        return build_candidate(self.task, source, spec, self.cache)

    def _tuned(self, built: Built | Rejected) -> Built | Rejected:
        """With an autotuner's choice made and frozen, so that nothing tunes while it is timed."""
        if self.lab is None or isinstance(built, Rejected):
            return built
        return tune(self.task.backend, self.lab, built, self.cache)

    def compare_all(self, iteration: int, matches: Mapping[str, Match]) -> dict[str, Comparison | Rejected]:
        """Interleaved A/B of each match, all in one sitting; each is logged once under the iteration and its name."""
        keys = {name: self.key(iteration, name) for name in matches}
        missing = {name: match for name, match in matches.items() if self.journal.find(Compared, keys[name]) is None}
        if missing:
            self.check_interrupted()
            names = dict.fromkeys(label for match in missing.values() for label, _ in (match.a, match.b))
            self.progress.activity(f"comparing {', '.join(names)}")
            outcomes = self.harness.compare_all([(m.a[1].artifact, m.b[1].artifact) for m in missing.values()])
            self.journal.append_all(
                [
                    Compared(key=keys[name], iteration=iteration, a=match.a[0], b=match.b[0], outcome=outcome)
                    for (name, match), outcome in zip(missing.items(), outcomes, strict=True)
                ]
            )
        return {name: self._comparison(key) for name, key in keys.items()}

    def _comparison(self, key: str) -> Comparison | Rejected:
        compared = self.journal.find(Compared, key)
        assert compared is not None
        return compared.outcome

    def _logged(self, kind: type[_E]) -> _E:
        found = self.journal.all(kind)
        if not found:
            raise LookupError(f"no {kind.__name__} has been logged yet")
        return found[-1]
