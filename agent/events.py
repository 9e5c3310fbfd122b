"""What happened, one class per kind. Events are appended and never changed; state, report and resume read the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agent.elsewhere import Elsewhere
from agent.event_base import Event as Event
from agent.events_batch import BatchAccepted as BatchAccepted
from agent.events_batch import BatchEnded as BatchEnded
from agent.events_batch import BatchSent as BatchSent
from agent.events_llm import ReplyReceived as ReplyReceived
from agent.events_llm import RequestFailed as RequestFailed
from agent.events_llm import RequestRetried as RequestRetried
from agent.events_llm import RequestSent as RequestSent
from agent.plan import Plan
from backends.types import Rejected
from memory.types import Recall
from profiling.environment import Environment
from profiling.findings import (
    Axis,
    Ceilings,
    Comparison,
    Evaluation,
    Headroom,
    MethodPresence,
    Profile,
    TaskCheck,
    Work,
)
from profiling.sanitizers.findings import SanitizerReport

MethodClass = Literal["effective", "ineffective", "implementation_failed", "interaction", "unverified"]
IterationStatus = Literal["accepted", "not-accepted", "failed", "stopped"]
StopReason = Literal["iterations", "near-peak", "budget", "patience"]


class RunStarted(Event):
    """A run folder was made."""

    type: Literal["run_started"] = "run_started"
    run_id: str
    version: str
    task: str
    backend: str
    provider: str
    model: str
    suffix: str
    noise: float


class SessionStarted(Event):
    """A process began (or went on with) the run. `key` counts sessions from 0."""

    type: Literal["session_started"] = "session_started"
    device_id: str
    environment: Environment


class ShapesDrawn(Event):
    """The hidden shapes of the run, drawn once: builds of Triton kernels are made for them."""

    type: Literal["shapes_drawn"] = "shapes_drawn"
    shapes: tuple[Mapping[str, int], ...]


class TaskChecked(Event):
    """The task's own test passed."""

    type: Literal["task_checked"] = "task_checked"
    check: TaskCheck
    work: Work
    notes: tuple[str, ...] = ()


class CeilingsMeasured(Event):
    """Ceilings of this device."""

    type: Literal["ceilings_measured"] = "ceilings_measured"
    ceilings: Ceilings


class FloorFound(Event):
    """The least time of one call: `floor_ms` at measured, `suspect_ms` at theoretical peaks. None: no work is known.

    `arithmetic`: whose peak holds the task, as ceilings name it; None in older logs.
    """

    type: Literal["floor_found"] = "floor_found"
    floor_ms: float | None
    suspect_ms: float | None
    arithmetic: str | None = None


class AaMeasured(Event):
    """A/A spread: the smallest gain that can be claimed on this machine today, found with a kernel of `median_ms`."""

    type: Literal["aa_measured"] = "aa_measured"
    spread: float
    median_ms: float


class ExploitsPlayed(Event):
    """Known exploits, made for the task, were rejected: `rejected` says why, `left_out` why one could not be made."""

    type: Literal["exploits_played"] = "exploits_played"
    rejected: Mapping[str, str]
    left_out: Mapping[str, str] = {}


class Evaluated(Event):
    """A kernel was built, verified and timed, or rejected on the way.

    `key`: `baseline`, `iter1/b0`, `iter1/b0/repair1`; `iter1/b0/home` is what was found elsewhere and found again here.
    """

    type: Literal["evaluated"] = "evaluated"
    iteration: int
    branch: str
    build_s: float | None
    outcome: Annotated[Evaluation | Rejected, Field(discriminator="kind")]
    elsewhere: Elsewhere | None = None


class TaskRetried(Event):
    """A build or an evaluation was lost with the place where it ran, and done again. `key` counts them from 0."""

    type: Literal["task_retried"] = "task_retried"
    task: str
    place: str
    reason: str


class Profiled(Event):
    """A kernel was profiled. `key` is the content key of its build, so an unchanged best is not profiled again."""

    type: Literal["profiled"] = "profiled"
    profile: Profile
    mix: Mapping[str, int | float | str]


class RooflineRecorded(Event):
    """Headroom of the best kernel at the start of an iteration."""

    type: Literal["roofline_recorded"] = "roofline_recorded"
    iteration: int
    headroom: Headroom
    axis_budget: Mapping[Axis, int]


class Recalled(Event):
    """What memory told this iteration's prompts."""

    type: Literal["recalled"] = "recalled"
    iteration: int
    recall: Recall


class PlanDecided(Event):
    """The iteration's plan, or why there is none after the last attempt."""

    type: Literal["plan_decided"] = "plan_decided"
    iteration: int
    plan: Plan | None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class BranchWritten(Event):
    """A branch kernel, or why there is none. `key`: `iter1/b0`, `iter1/b0/repair1`."""

    type: Literal["branch_written"] = "branch_written"
    iteration: int
    branch: str
    model: str
    source: str | None
    rejected: Rejected | None = None


class BranchesBuilt(Event):
    """The branches of an iteration (or of a repair) were built: the seconds each took, None for one that did not build.

    Told so that who looks on sees that builds are over; nothing is decided by it.
    """

    type: Literal["branches_built"] = "branches_built"
    iteration: int
    seconds: Mapping[str, float | None]


class Compared(Event):
    """Interleaved A/B of two kernels. `key`: `iter1/champion`, `iter1/no_<method>`, `iter1/all_off`, `final`."""

    type: Literal["compared"] = "compared"
    iteration: int
    a: str
    b: str
    outcome: Annotated[Comparison | Rejected, Field(discriminator="kind")]


class Sanitized(Event):
    """A kernel ran under the sanitizers, once. `key`: `sanitized/baseline`, `iter1/sanitized`."""

    type: Literal["sanitized"] = "sanitized"
    iteration: int
    kernel: str
    report: SanitizerReport


class ChampionDecided(Event):
    """The iteration's fastest correct branch, and whether it replaced the best kernel."""

    type: Literal["champion_decided"] = "champion_decided"
    iteration: int
    branch: str
    accepted: bool
    reason: str


class MachineCodeChecked(Event):
    """Machine-code evidence for the champion's methods."""

    type: Literal["machine_code_checked"] = "machine_code_checked"
    iteration: int
    presence: tuple[MethodPresence, ...]


class AblationBuilt(Event):
    """The champion without one method (or, `method` "all", without any): by switch or by rewrite, or why not."""

    type: Literal["ablation_built"] = "ablation_built"
    iteration: int
    method: str
    form: Literal["switch", "rewrite"]
    source: str | None
    code_differs: bool | None
    rejected: Rejected | None = None


class Attribution(BaseModel):
    """One method's cause, presence and effect.

    Attributes:
        method: catalogue id.
        axis: its axis.
        method_class: how it was classified.
        attribution_ms: time without it less the champion's, with `low_ms`/`high_ms` (95%); None: unknown.
        presence: machine-code verdict.
        form: how it was ablated, None when it was not.
        reason: one line.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    axis: Axis
    method_class: MethodClass
    attribution_ms: float | None
    low_ms: float | None
    high_ms: float | None
    presence: Literal["verified", "absent", "unavailable", "none"]
    form: Literal["switch", "rewrite"] | None
    reason: str


class Attributed(Event):
    """The iteration's attribution table. `gain_ms`: base less champion; `audit`: the switch audit in one line."""

    type: Literal["attributed"] = "attributed"
    iteration: int
    gain_ms: float | None
    rows: tuple[Attribution, ...]
    audit: str | None


class Remembered(Event):
    """What went into strategy memory."""

    type: Literal["remembered"] = "remembered"
    iteration: int
    records: tuple[int, ...]
    lessons: tuple[str, ...]


class IterationEnded(Event):
    """End of an iteration."""

    type: Literal["iteration_ended"] = "iteration_ended"
    iteration: int
    status: IterationStatus
    reason: str


class RunEnded(Event):
    """The run finished, improved or not."""

    type: Literal["run_ended"] = "run_ended"
    stop_reason: StopReason
    note: str = ""


class Paused(Event):
    """A session ended before the run did: a signal, a waiting answer, or a failure. `key` counts them.

    `exit_code` is what its process ended with; None in logs of versions that did not write it.
    """

    type: Literal["paused"] = "paused"
    status: Literal["interrupted", "waiting", "failed"]
    reason: str
    exit_code: int | None = None


class Noted(Event):
    """Something a person should know in the morning."""

    type: Literal["noted"] = "noted"
    text: str


AnyEvent = Annotated[
    RunStarted
    | SessionStarted
    | ShapesDrawn
    | TaskChecked
    | CeilingsMeasured
    | FloorFound
    | AaMeasured
    | ExploitsPlayed
    | Evaluated
    | TaskRetried
    | Profiled
    | RooflineRecorded
    | Recalled
    | RequestSent
    | RequestRetried
    | ReplyReceived
    | RequestFailed
    | BatchSent
    | BatchAccepted
    | BatchEnded
    | PlanDecided
    | BranchWritten
    | BranchesBuilt
    | Compared
    | Sanitized
    | ChampionDecided
    | MachineCodeChecked
    | AblationBuilt
    | Attributed
    | Remembered
    | IterationEnded
    | RunEnded
    | Paused
    | Noted,
    Field(discriminator="type"),
]
EVENT: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)
