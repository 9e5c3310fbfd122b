"""The `executor` section: what builds and evaluations are spread over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from agent.config_values import Positive, Section, Whole


def _by_kind(value: object) -> object:
    """`executor: ray` stands for `executor: {kind: ray}`."""
    return {"kind": value} if isinstance(value, str) else value


class ExecutorSection(Section):
    """Where builds and evaluations run. What is decisive is always measured on the run's own device.

    Attributes:
        kind: `local` is this machine, `ray` a Ray cluster.
        address: of the cluster, as `ray.init` takes it; `auto` is the one that this machine is part of.
        retries: how often a task that a node lost is tried again on the cluster, before it is done here.
        resources: what a node must offer, beside the CPUs and the GPU, to evaluate (`accelerator_type:H200: 0.001`).
    """

    kind: Literal["local", "ray"] = "local"
    address: str = "auto"
    retries: Annotated[Whole, Field(ge=0, le=10)] = 2
    resources: Mapping[str, Positive] = {}


Executor = Annotated[ExecutorSection, BeforeValidator(_by_kind)]
