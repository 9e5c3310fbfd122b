"""What controller and oracle say to each other: one JSON object a line, over pipes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from profiling.findings import CaseCheck, Conditions, TaskCheck
from profiling.types import Limits, MeasureSettings, Problem


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Open(_Message):
    """The first request: the task, where the native parts are, and what workers see beside the usual environment.

    `runner` is the native runner, or the library of Triton workers; `flush` is None on a GPU; `arch` and `cache` are
    for Triton workers alone.
    """

    kind: Literal["open"] = "open"
    problem: Problem
    settings: MeasureSettings
    limits: Limits
    runner: Path
    empty: Path
    flush: Path | None
    environment: dict[str, str] = {}
    arch: str = ""
    cache: Path | None = None


class CheckTask(_Message):
    """Test the task itself, with its baseline."""

    kind: Literal["check_task"] = "check_task"
    baseline: Path


class Evaluate(_Message):
    """Verify and time kernels.

    `again`: they were verified, and their times were in doubt, which may be the machine's: what waking a worker costs
    changes with what else goes on there, so an empty `solve` is timed anew, too.
    """

    kind: Literal["evaluate"] = "evaluate"
    artifacts: tuple[Path, ...]
    again: bool = False


class Compare(_Message):
    """Interleave kernels; `pairs` are the places in `kernels` of the two that are compared, a and b.

    `again`: as in `Evaluate`.
    """

    kind: Literal["compare"] = "compare"
    kernels: tuple[Path, ...]
    pairs: tuple[tuple[int, int], ...]
    again: bool = False


class Tune(_Message):
    """Let a Triton kernel's autotuners choose, once for each case."""

    kind: Literal["tune"] = "tune"
    artifact: Path


class Prepare(_Message):
    """Have workers open the GPU ahead, as many as there is room for; they wait without a core."""

    kind: Literal["prepare"] = "prepare"
    workers: int


class Stage(_Message):
    """Write one call's data to a file for `runner --solo`.

    `check` is the number of an extra case, None for the timed one; `apart` gives each tensor memory of its own.
    """

    kind: Literal["stage"] = "stage"
    target: Path
    check: int | None = None
    apart: bool = False


Request = Annotated[Open | CheckTask | Evaluate | Compare | Tune | Prepare | Stage, Field(discriminator="kind")]


class Phase(_Message):
    """Something begins that may take up to `limit_s`; past that the controller ends the oracle."""

    kind: Literal["phase"] = "phase"
    name: str
    limit_s: float


class Failed(_Message):
    """A request that was not fulfilled: through the task's fault, the machine's, or the harness's own."""

    kind: Literal["failed"] = "failed"
    fault: Literal["task", "machine", "harness"]
    message: str


class Opened(_Message):
    """The oracle is ready; these walls stand around its workers."""

    kind: Literal["opened"] = "opened"
    layers: dict[str, bool]


class Checked(_Message):
    """The task is fit."""

    kind: Literal["checked"] = "checked"
    check: TaskCheck


class Prepared(_Message):
    """They wait."""

    kind: Literal["prepared"] = "prepared"


class Staged(_Message):
    """The file is written."""

    kind: Literal["staged"] = "staged"


class Tuned(_Message):
    """What the autotuners chose, by autotuner and key; or why they could not."""

    kind: Literal["tuned"] = "tuned"
    choices: dict[str, dict[str, int]]
    failure: str | None


class FrameTimes(_Message):
    """One exchange with a worker: each call by the worker's clock, the whole by the oracle's; nanoseconds.

    `waited_ns` is how long the worker could have run but had no core; `event_ns` when the default stream had ended;
    `conditions` how a GPU fared.
    """

    own_ns: tuple[int, ...]
    outside_ns: int
    waited_ns: int = 0
    event_ns: tuple[int, ...] = ()
    conditions: Conditions | None = None


class Round(_Message):
    """Unflushed frames of n and 2n calls, each timed as if alone, by both clocks; nanoseconds."""

    n: int
    own_n: int
    outside_n: int
    own_2n: int
    outside_2n: int


class Times(_Message):
    """Frames of one kernel, and rounds for the outside clock (none where only one call fits in memory)."""

    frames: tuple[FrameTimes, ...]
    rounds: tuple[Round, ...]


class Evaluated(_Message):
    """Raw evidence on one kernel: the controller derives the verdict. `times` is None when it was not timed."""

    checks: tuple[CaseCheck, ...]
    times: Times | None
    empty: Times | None


class Evaluations(_Message):
    """What is known of each kernel of an `evaluate`, in its order."""

    kind: Literal["evaluations"] = "evaluations"
    found: tuple[Evaluated, ...]


class Block(_Message):
    """Two frames of each kernel, in the order ABBA or BAAB, on equal inputs."""

    a: tuple[FrameTimes, FrameTimes]
    b: tuple[FrameTimes, FrameTimes]


class Compared(_Message):
    """Raw evidence on two kernels: blocks by worker pair; `failure` says which kernel failed, and how.

    `rounds` are those of a and of b for the outside clock, where a frame holds one call alone; else empty. `batched`
    are blocks whose frames are batches, where calls are short; `batched_empty` is an empty `solve` in such frames.
    """

    pairs: tuple[tuple[Block, ...], ...]
    rounds: tuple[tuple[Round, ...], tuple[Round, ...]] = ((), ())
    batched: tuple[tuple[Block, ...], ...] = ()
    batched_empty: Times | None = None
    empty: Times | None
    failure: str | None


class Interleaved(_Message):
    """What each pair of a `compare` rests on, in its order."""

    kind: Literal["interleaved"] = "interleaved"
    found: tuple[Compared, ...]


Reply = Annotated[
    Phase | Failed | Opened | Checked | Prepared | Staged | Tuned | Evaluations | Interleaved,
    Field(discriminator="kind"),
]
REQUEST: TypeAdapter[Request] = TypeAdapter(Request)
REPLY: TypeAdapter[Reply] = TypeAdapter(Reply)
