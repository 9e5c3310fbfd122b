"""Opening a run: new or resumed, its parts made and wired, its lock held, and everything closed again at the end."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from agent.allowance import UNBOUNDED, Allowance
from agent.artefacts import write_json, write_text
from agent.asking import Asker
from agent.batching import Batching
from agent.budget import Budget
from agent.config import Config, load_config
from agent.errors import ConfigError, Interrupted, RoofclimbError, UnfitEnvironment, WaitingForAnswer
from agent.events import (
    AnyEvent,
    CeilingsMeasured,
    Paused,
    ReplyReceived,
    RunEnded,
    RunStarted,
    SessionStarted,
    ShapesDrawn,
)
from agent.executors.choose import open_executor
from agent.faults import as_exit_codes
from agent.hidden_shapes import draw_shapes, with_hidden
from agent.journal import Journal
from agent.llm.registry import make_batches, make_provider
from agent.llm.types import LLMSettings, Provider
from agent.loop import optimise
from agent.machine import Machine, find_machine, look_at
from agent.paths import cache_folder, new_run_folder
from agent.progress import Progress
from agent.report.build import write_reports
from agent.retrying import RetryLog
from agent.roles import Providers, Roles
from agent.run import Run
from agent.run_checks import check_llm, check_run
from agent.run_folder import copy_inputs, is_run, taken_back_if_empty
from agent.scopes import scope_of
from agent.state import State, write_state
from agent.state_fold import StateFold, fold
from agent.task import Task, on_machine, open_harness, prepare_task
from agent.this_process import stop_on_signals
from backends.types import Backend, ToolchainError
from memory.errors import StoreError
from memory.store import Store
from profiling.device import cpu_facts
from profiling.environment import to_markdown
from profiling.harness.harness import Harness
from prompts.catalogue import load_catalogue

_T = TypeVar("_T")
FindMachine = Callable[[Config, Backend, Callable[[str], None]], Machine]
"""What finds the machine that a task's kernels run on."""

_PAUSES: dict[type[RoofclimbError], str] = {Interrupted: "interrupted", WaitingForAnswer: "waiting"}


def start(config: Config, progress: Callable[[int], Progress]) -> State:
    """A new run, from its folder to its report.

    Raises:
        RoofclimbError: as the exit codes say; what was measured is kept.
    """
    task = check_run(config)
    folder = new_run_folder(config.output)
    with taken_back_if_empty(folder):
        copy_inputs(config, task, folder)
        return proceed(folder, progress)


def resume(folder: Path, progress: Callable[[int], Progress]) -> State:
    """Go on with a run where it stopped.

    Raises:
        RoofclimbError: as the exit codes say.
    """
    folder = folder.resolve()
    if not is_run(folder):
        raise ConfigError(f"{folder}: not a run folder (config.yaml and events.jsonl are not both there)")
    return proceed(folder, progress)


def proceed(
    folder: Path,
    progress: Callable[[int], Progress],
    work: Callable[[Run], None] = optimise,
    allowance: Allowance = UNBOUNDED,
    find: FindMachine = find_machine,
) -> State:
    """Open the run in `folder`, do `work` and close it again; a run that has ended is only reported.

    Args:
        folder: of a run that was begun.
        progress: made for so many iterations.
        work: what is to be done.
        allowance: what this session may spend at most, beside the run's own budget.
        find: this machine.

    Raises:
        RoofclimbError: as the exit codes say; what was measured is kept.
    """
    config = load_config(folder / "config.yaml")
    with ExitStack() as stack:
        shown = progress(config.search.iterations)
        stack.callback(shown.close)
        journal = Journal(folder)
        stack.callback(journal.close)
        if journal.find(RunEnded, "end") is not None:
            write_reports(folder)
            return fold(journal.events)
        stopped = threading.Event()
        stack.enter_context(stop_on_signals(stopped, shown.activity))
        try:
            config = allowance.applied(config, fold(journal.events))
            check_llm(config)
            with as_exit_codes(), open_run(folder, journal, shown, stopped, config, find) as run:
                work(run)
        except RoofclimbError as error:
            _pause(folder, journal, _PAUSES.get(type(error), "failed"), str(error), error.exit_code)
            raise
        except Exception as bug:
            _pause(folder, journal, "failed", f"bug: {type(bug).__name__}: {bug}", 1)
            raise
        write_reports(folder)
        return fold(journal.events)


@contextmanager
def open_run(
    folder: Path,
    journal: Journal,
    progress: Progress,
    stopped: threading.Event,
    config: Config,
    find: FindMachine = find_machine,
) -> Iterator[Run]:
    """The run in `folder`, its parts made and wired; closed with the block."""
    bound = prepare_task(config)
    cache = cache_folder()
    warnings: list[str] = []
    with ExitStack() as stack:
        machine = _machine(config, bound.backend, journal, warnings, find)
        task = on_machine(bound, machine)
        store = _open_store(config)
        stack.callback(store.close)
        if store.migrated is not None:
            warnings.append(store.migrated)
        _log_start(folder, journal, config, task)
        task = with_hidden(task, _hidden(journal, task, cache / "builds"))
        journal.listen(_state_writer(journal, folder))
        progress.catch_up(journal.events)
        journal.listen(progress)
        lab = stack.enter_context(_lab(task, machine, cache, progress, stopped)) if machine.present else None
        if lab is not None:
            _log_session(folder, journal, task, machine, lab, cache)
        budget = Budget(config.budget)
        assert config.llm is not None
        roles = Roles(config.llm)
        executor = open_executor(task, machine, lab, cache, stopped.is_set)
        stack.callback(executor.close)
        run = Run(
            task=task,
            folder=folder,
            cache=cache / "builds",
            journal=journal,
            lab=lab,
            machine=machine,
            catalogue=load_catalogue(),
            store=store,
            scope=scope_of(config.task, task.backend.name, machine.arch),
            asker=Asker(
                Providers(roles, _usable(_provider_maker(journal, budget))),
                roles.of,
                journal,
                budget,
                stopped.is_set,
                Batching(
                    Providers(roles, _usable(make_batches)),
                    roles.of,
                    journal,
                    budget,
                    60 * config.llm.batch_deadline_minutes,
                    stopped.is_set,
                ),
            ),
            executor=executor,
            budget=budget,
            progress=progress,
            versions={"roofclimb": version("roofclimb"), **task.backend.toolchain()},
            stopped=stopped,
        )
        stack.callback(run.close)
        for text in warnings:
            run.note(f"warning/{text}", text)
        if lab is not None:
            key = run.key(0, "ceilings")
            progress.activity(f"measuring what this {'machine' if machine.gpu is None else 'GPU'} can do")
            ceilings = machine.ceilings(cache, config)
            journal.once(CeilingsMeasured, key, lambda: CeilingsMeasured(key=key, ceilings=ceilings))
        yield run


def _hidden(journal: Journal, task: Task, builds: Path) -> Sequence[Mapping[str, int]]:
    """The run's hidden shapes, drawn in its first session."""

    def draw() -> ShapesDrawn:
        return ShapesDrawn(key="hidden", shapes=draw_shapes(task, random.SystemRandom(), builds))

    return journal.once(ShapesDrawn, "hidden", draw).shapes


def _machine(config: Config, backend: Backend, journal: Journal, warnings: list[str], find: FindMachine) -> Machine:
    """This machine. A run that was measured elsewhere goes on without its GPU until something must be measured."""
    try:
        return find(config, backend, warnings.append)
    except ToolchainError as error:
        known = [e.environment.gpu for e in journal.all(SessionStarted) if e.environment.gpu is not None]
        if not known:
            raise
        warnings.append(f"no GPU here ({error}): the run goes on until something must be measured")
        return Machine(cpu_facts(), known[-1], present=False)


@contextmanager
def _lab(task: Task, machine: Machine, cache: Path, progress: Progress, stopped: threading.Event) -> Iterator[Harness]:
    """What measures."""
    with open_harness(
        task,
        machine,
        cache,
        stopped=stopped.is_set,
        waiting=lambda: progress.activity("waiting for another run's timing"),
    ) as harness:
        _require_sandbox(task.config, harness)
        yield harness


def _log_session(folder: Path, journal: Journal, task: Task, machine: Machine, lab: Harness, cache: Path) -> None:
    # The counter of a GPU that is read for it would disturb another run's timing.
    with lab.alone() if machine.gpu is not None else nullcontext():
        environment = look_at(machine, task.backend, lab.layers(), cache)
    number = str(len(journal.all(SessionStarted)))
    journal.append(SessionStarted(key=number, device_id=machine.id, environment=environment))
    write_json(folder / "env.json", environment)
    write_text(folder / "env.md", to_markdown(environment))


def _provider_maker(journal: Journal, budget: Budget) -> Callable[[LLMSettings], Provider]:
    """What makes a provider that leaves out what models of this run rejected, and logs each wait before it begins."""
    rejected = [name for event in journal.all(ReplyReceived) for name in event.reply.rejected]
    return partial(make_provider, retried=RetryLog(journal, budget), rejected=rejected)


def _usable(make: Callable[[LLMSettings], _T]) -> Callable[[LLMSettings], _T]:
    """What makes a provider, its complaints as config errors."""

    def made(settings: LLMSettings) -> _T:
        try:
            return make(settings)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    return made


def _open_store(config: Config) -> Store:
    try:
        return Store(config.memory.url)
    except StoreError as error:
        raise ConfigError(f"memory.url: {error}") from None


def _log_start(folder: Path, journal: Journal, config: Config, task: Task) -> None:
    assert config.llm is not None
    journal.once(
        RunStarted,
        "run",
        lambda: RunStarted(
            key="run",
            run_id=folder.name,
            version=version("roofclimb"),
            task=config.task.name,
            backend=task.backend.name,
            provider=config.llm.provider if config.llm else "",
            model=config.llm.model if config.llm else "",
            suffix=task.backend.suffix,
            noise=config.search.noise,
        ),
    )


def _require_sandbox(config: Config, harness: Harness) -> None:
    missing = [name for name, stands in harness.layers().items() if not stands]
    if config.measure.require_sandbox and missing:
        raise UnfitEnvironment(
            f"this machine does not allow these layers of the sandbox: {', '.join(missing)}; "
            "run as root, allow user namespaces, use a kernel with Landlock, or drop --require-sandbox"
        )


def _state_writer(journal: Journal, folder: Path) -> Callable[[AnyEvent], None]:
    states = StateFold()
    for event in journal.events:
        states.take(event)

    def write(event: AnyEvent) -> None:
        states.take(event)
        write_state(states.state, folder)

    return write


def _pause(folder: Path, journal: Journal, status: str, reason: str, exit_code: int) -> None:
    """Save that and why the session ended. On a full disk what is there already has to do."""
    event = {"key": str(len(journal.all(Paused))), "status": status, "reason": reason, "exit_code": exit_code}
    with suppress(UnfitEnvironment, OSError):
        journal.append(Paused.model_validate(event))
        write_state(fold(journal.events), folder)
        write_reports(folder)
