"""Methods behind compile-time switches: how a kernel is built without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent.plan import Plan
from agent.run import Run
from backends.types import BuildSpec
from prompts.catalogue import switch_name

ALL = "all"


def switched_off(spec: BuildSpec, methods: Sequence[str]) -> BuildSpec:
    """How a kernel is built without these methods, all else unchanged."""
    return replace(spec, define={**spec.define, **{switch_name(m): "0" for m in methods}})


def switched_specs(run: Run, plan: Plan, source: str) -> dict[str, BuildSpec]:
    """All that a switch can make: without each method that has one and, if all have, without any."""
    switchable = [m for m in plan.method_ids if run.task.backend.has_switch(source, switch_name(m))]
    specs = {m: switched_off(run.task.spec, [m]) for m in switchable}
    if len(switchable) == len(plan.method_ids):
        specs[ALL] = switched_off(run.task.spec, switchable)
    return specs
