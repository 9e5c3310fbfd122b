"""What a run and the nodes of a cluster say to each other: JSON both ways, files by digest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agent.executors.parcels import Parcel
from backends.types import BuildSpec, Built, Rejected, Signature
from profiling.findings import Evaluation
from profiling.types import Limits, MeasureSettings, Problem


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BuildOrder(_Message):
    """Build one candidate.

    Attributes:
        version: of Roofclimb; a node with another one refuses.
        backend: by name.
        toolchain: what the run builds with; a node with anything else refuses.
        source: the candidate.
        includes: the spec's include folders, in their order.
        spec: the rest of it; its paths mean nothing there and are empty.
        signature: the baseline's.
        libraries: those that the task allows.
    """

    version: str
    backend: str
    toolchain: Mapping[str, str]
    source: Parcel
    includes: tuple[Parcel, ...]
    spec: BuildSpec
    signature: Signature
    libraries: tuple[str, ...]


class Bench(_Message):
    """What a device must know of a run before it evaluates: equal benches share a harness there.

    Attributes:
        version: as above.
        backend: by name.
        device: the run's own, by its model; a node with another one refuses.
        arch: that GPU kernels are built for; empty on a CPU.
        problem: the task; its `reference` and `gpu` are the node's to fill in.
        reference: the reference module.
        settings, limits: how to measure, and the walls around a worker.
        baseline: the artifact with which the task is tested.
        floor_ms: a time under this is not believed.
    """

    version: str
    backend: str
    device: str
    arch: str
    problem: Problem
    reference: Parcel
    settings: MeasureSettings
    limits: Limits
    baseline: Parcel
    floor_ms: float | None


class EvaluateOrder(_Message):
    """Verify and time one kernel, and the best kernel beside it. `base_key` names the latter's build."""

    bench: Bench
    base_key: str
    base: Parcel
    kernel: Parcel


class Refused(_Message):
    """The node cannot do it; that says nothing of the kernel."""

    kind: Literal["refused"] = "refused"
    reason: str


class BuildReply(_Message):
    """What came of a build: its record (the artifact's path means nothing here), and its files in base 64 by digest."""

    kind: Literal["built"] = "built"
    outcome: Annotated[Built | Rejected, Field(discriminator="kind")]
    artifact: Parcel | None = None
    contents: Mapping[str, str] = {}


class EvaluateReply(_Message):
    """What is known of the kernel, on which device, and the best kernel's time there, ms."""

    kind: Literal["evaluated"] = "evaluated"
    evaluation: Evaluation
    device: str
    base_ms: float


Reply = Annotated[Refused | BuildReply | EvaluateReply, Field(discriminator="kind")]
REPLY: TypeAdapter[Reply] = TypeAdapter(Reply)
