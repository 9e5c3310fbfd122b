"""What executors take and give: tasks that need nothing of each other, and their results."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agent.elsewhere import Elsewhere
from backends.types import BuildSpec, Built, Rejected
from profiling.findings import Evaluation


@dataclass(frozen=True, slots=True)
class BuildTask:
    """One candidate to be built and held to the task's contract."""

    source: Path
    spec: BuildSpec


@dataclass(frozen=True, slots=True)
class EvaluateTask:
    """Kernels to be verified and timed on one device, with what ranks them: the best kernel, on the same device.

    Attributes:
        kernels: their builds.
        base: the best kernel's.
        base_ms: its time on the run's own device.
    """

    kernels: tuple[Built, ...]
    base: Built
    base_ms: float


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of each kernel of an `EvaluateTask`; `elsewhere` is None on the run's own device."""

    evaluations: tuple[Evaluation, ...]
    elsewhere: Elsewhere | None


@dataclass(frozen=True, slots=True)
class Setting:
    """What a device must know before it can evaluate.

    Attributes:
        baseline: its build, with which the task is tested there.
        base: the best kernel's, which is timed there.
        floor_ms: a time under this is not believed; None where nothing can be said.
    """

    baseline: Built
    base: Built
    floor_ms: float | None


@dataclass(frozen=True, slots=True)
class Trouble:
    """What did not go as sent: `task` was lost at `place` and is done again, or (None) the place is out."""

    task: str | None
    place: str
    reason: str


class Executor(Protocol):
    """Spreads tasks. A task that is lost with where it ran is done again; one that fails on its own merits is a value.

    Attributes:
        spare_cores: CPUs of this machine that no timing needs.
        together: whether one `EvaluateTask` of several kernels is quicker than one for each.
    """

    spare_cores: tuple[int, ...]
    together: bool

    @property
    def places(self) -> int:
        """How many evaluations may go on at once now; at least 1."""
        ...

    def prepare(self, setting: Setting) -> None:
        """Let devices begin to learn what they must know; does not wait for them. Comes before `evaluate`."""
        ...

    def open_workers(self, kernels: int, at_home: int = 0) -> None:
        """Let workers open their GPU ahead. Does not wait; nothing depends on it: what finds none starts its own.

        Args:
            kernels: to be evaluated together soon, wherever there is a place.
            at_home: so many workers more on the run's own device.
        """
        ...

    def build(self, task: BuildTask) -> Future[Built | Rejected]:
        """Begin to build. The result raises ToolchainError: the compiler is missing or broken."""
        ...

    def evaluate(self, task: EvaluateTask) -> Future[Found]:
        """Begin to evaluate. The result raises what the run's own harness raises."""
        ...

    def troubles(self) -> list[Trouble]:
        """What went wrong since this was asked last."""
        ...

    def close(self) -> None:
        """Give everything back. Waits for what goes on."""
        ...
