"""Measuring a kernel outside a run: what `bench`, `profile`, `roofline` and `ablate` have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.asked import Asked
from agent.config import Config, load_config, parse_assignments, resolve, validate, with_overrides
from agent.errors import ConfigError, UnfitEnvironment
from agent.faults import as_exit_codes
from agent.machine import Machine, find_machine, say_warning
from agent.paths import cache_folder, find_config
from agent.task import Task, build_candidates, on_machine, open_harness, prepare_task, suspect_ms, tune, work_of
from backends.registry import detect
from backends.types import BuildSpec, Built, Rejected
from profiling.findings import Ceilings, Evaluation, TaskCheck, Verdict
from profiling.harness.harness import Harness
from profiling.types import TaskError


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel to be measured.

    Attributes:
        config: of its task.
        kernel: the file.
        candidate: the same file where it is another kernel of the task; None where it is the baseline itself.
    """

    config: Config
    kernel: Path
    candidate: Path | None


@dataclass(frozen=True, slots=True)
class Measured:
    """A kernel built, verified and timed.

    Attributes:
        built: its build, None where it was rejected.
        outcome: what came of it.
        check: of the task; None without a reference, and for a kernel that is no fit baseline of its own.
        baseline: the task's baseline where the kernel is another one.
    """

    built: Built | None
    outcome: Evaluation | Rejected
    check: TaskCheck | None
    baseline: Built | None


@dataclass(frozen=True, slots=True)
class Lab:
    """What a task's kernels are measured with. `builds` is where builds are kept."""

    task: Task
    machine: Machine
    harness: Harness
    ceilings: Ceilings
    builds: Path

    def build(self, sources: Sequence[tuple[Path, BuildSpec]]) -> list[Built | Rejected]:
        """Build kernels in parallel, in order, and hold them to the task's signature and libraries.

        Raises:
            ToolchainError: the compiler is missing or broken.
        """
        builds = build_candidates(self.task, sources, self.builds, self.machine.cpu.usable_cores)
        return [self._tuned(built) for built in builds]

    def build_baseline(self) -> Built:
        """The task's baseline. Raises ConfigError: it does not build."""
        built = self._tuned(self.task.backend.build(self.task.baseline, self.task.spec, self.builds))
        if isinstance(built, Rejected):
            raise ConfigError(f"the baseline {self.task.baseline} does not build: {built.reason}")
        return built

    def _tuned(self, built: Built | Rejected) -> Built | Rejected:
        """With an autotuner's choice made and frozen, so that nothing tunes while it is timed or profiled."""
        return built if isinstance(built, Rejected) else tune(self.task.backend, self.harness, built, self.builds)

    def check_task(self, baseline: Built) -> TaskCheck | None:
        """Test the task, which must come before anything is evaluated, and settle the floor under times.

        Raises:
            TaskError: the reference, the tolerance or the baseline is unfit.
        """
        check = self.harness.check_task(baseline.artifact) if self.task.problem.reference else None
        self._set_floor(check)
        return check

    def _set_floor(self, check: TaskCheck | None) -> None:
        """From now on a time that this machine cannot reach is `suspect`."""
        work = work_of(self.task, check)
        self.harness.set_floor(suspect_ms(work, self.ceilings, self.task, self.machine.gpu))

    def measure(self, candidate: Path | None) -> Measured:
        """Build, verify and time a kernel of the task, or its baseline where `candidate` is None.

        Raises:
            ConfigError: the baseline beside a candidate does not build.
            TaskError: the task is unfit.
        """
        if candidate is None:
            return self._measure_alone()
        baseline = self.build_baseline()
        check = self.check_task(baseline)
        (built,) = self.build([(candidate, self.task.spec)])
        if isinstance(built, Rejected):
            return Measured(None, built, check, baseline)
        return Measured(built, self.harness.evaluate(built.artifact), check, baseline)

    def _measure_alone(self) -> Measured:
        """The kernel is its own baseline: that it is wrong is a verdict, that its task is unfit an error."""
        (built,) = self.build([(self.task.baseline, self.task.spec)])
        if isinstance(built, Rejected):
            return Measured(None, built, None, None)
        check, unfit = None, None
        try:
            check = self.check_task(built)
        except TaskError as error:
            unfit = error
            self._set_floor(None)
        outcome = self.harness.evaluate(built.artifact)
        if unfit is not None and outcome.verdict != "fail":
            raise unfit
        return Measured(built, outcome, check, None)


@contextmanager
def open_lab(config: Config) -> Iterator[Lab]:
    """The machine, its ceilings and a harness for a task; whatever fails below ends as its exit code.

    Raises:
        ConfigError, UnfitEnvironment, HarnessBroken: as the exit codes say.
    """
    bound = prepare_task(config)
    cache = cache_folder()
    with as_exit_codes():
        machine = find_machine(config, bound.backend, say_warning)
        task = on_machine(bound, machine)
        ceilings = machine.ceilings(cache, config)
        with open_harness(task, machine, cache) as harness:
            yield Lab(task, machine, harness, ceilings, cache / "builds")


def find_subject(asked: Asked, command: str) -> Subject:
    """The kernel that a command is asked about, and the task that it is measured in.

    Raises:
        ConfigError: options that do not go together, no such file, or a task file that is wrong.
    """
    if asked.kernel is not None and asked.config is not None:
        raise ConfigError(f"{command}: with --config the kernel is given as --kernel {asked.kernel}")
    if asked.kernel is None and asked.config is None:
        raise ConfigError(f"{command}: give a KERNEL, or a task file with --config")
    if asked.config is not None:
        if asked.ref is not None or asked.dims or asked.scalars:
            raise ConfigError(
                f"{command}: --ref, --dim and --scalar go with KERNEL; with --config the task file says them"
            )
        config = load_config(find_config(asked.config), asked.overrides)
        if asked.candidate is None:
            return Subject(config, config.task.baseline, None)
        return Subject(config, existing(asked.candidate), asked.candidate)
    if asked.candidate is not None:
        raise ConfigError(f"{command}: --kernel goes with --config")
    assert asked.kernel is not None
    return _alone(asked, command, asked.kernel)


def backend_name(config: Config) -> str:
    """The backend of a task's kernels. Raises ConfigError: the baseline's name says nothing."""
    section = config.task
    with as_exit_codes():
        return detect(section.baseline) if section.backend == "auto" else section.backend


def timed(kernel: Path, outcome: Evaluation | Rejected) -> tuple[Verdict, float]:
    """Verdict and time, ms, of a kernel that there is no use to go on with unless it has one.

    Raises:
        ConfigError: it does not build, or is wrong.
        UnfitEnvironment: it cannot be timed here.
    """
    if isinstance(outcome, Rejected):
        raise ConfigError(f"{kernel}: {outcome.stage}: {outcome.reason}")
    if outcome.verdict == "fail":
        raise ConfigError(f"{kernel}: is wrong, so that its time means nothing: {outcome.reason}")
    if outcome.timing is None:
        raise UnfitEnvironment(f"{kernel}: cannot be timed here: {outcome.reason}; is the machine busy?")
    return outcome.verdict, outcome.timing.median_ms


def existing(path: Path) -> Path:
    """The path of a file that is there. Raises ConfigError."""
    if not path.is_file():
        raise ConfigError(f"{path}: is a folder; name a file" if path.is_dir() else f"{path}: no such file")
    return path


def _alone(asked: Asked, command: str, kernel: Path) -> Subject:
    """A task of its own for a kernel without a task file."""
    task: dict[str, Any] = {
        "name": command,
        "baseline": str(existing(kernel).absolute()),
        "dims": parse_assignments(asked.dims, "--dim"),
        "scalars": parse_assignments(asked.scalars, "--scalar"),
    }
    if asked.ref is not None:
        task["reference"] = str(existing(asked.ref).absolute())
    config = validate(with_overrides({"task": task}, asked.overrides), command, asked.overrides)
    return Subject(resolve(config, Path.cwd()), kernel, None)
