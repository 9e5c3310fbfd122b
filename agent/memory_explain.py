"""`memory explain TASK.yaml`: what a run of that task would be told now, and why."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from agent.config import Config
from agent.errors import ConfigError
from agent.llm.prices import estimate_tokens
from agent.scopes import scope_of
from backends.registry import detect, get_backend
from backends.types import Backend, ToolchainError
from memory.recall import pooled_evidence, recall
from memory.scope import describe, terms
from memory.standing import Standing, grouped, seen_from, standing
from memory.telling import strategy_shown, tell
from memory.types import Scope, StoredRecord
from profiling.device import cpu_facts
from profiling.gpu_device import find_gpu
from prompts.catalogue import load_catalogue
from prompts.renderer import render


@dataclass(frozen=True, slots=True)
class Where:
    """A task's scope here, and the tools it would be built with (None: they are not here)."""

    scope: Scope
    versions: Mapping[str, str] | None
    features: tuple[str, ...]


def where(config: Config, arch: str | None) -> Where:
    """Find the scope of a task, on `arch` if that is given.

    Raises:
        ConfigError: the kernel's backend needs a GPU, none is here, and no architecture was named.
    """
    section = config.task
    backend = get_backend(detect(section.baseline) if section.backend == "auto" else section.backend)
    try:
        versions: Mapping[str, str] | None = backend.toolchain()
    except ToolchainError:
        versions = None
    cpu = cpu_facts()
    features = (*cpu.features, *(("multicore",) if config.device.threads > 1 else ()))
    return Where(scope_of(section, backend.name, arch or _arch(config, backend)), versions, features)


def explain(
    config: Config, found: Where, records: tuple[StoredRecord, ...], now: datetime | None = None
) -> tuple[dict[str, Any], str]:
    """What a prompt would say, and the standing of each related strategy, as data and as text."""
    scope, now = found.scope, now or datetime.now(timezone.utc)
    told_of = recall(records, scope, now=now, versions=found.versions)
    offered = [m.id for m in load_catalogue().select(scope.backend, scope.arch, features=found.features)]
    told = tell(told_of, config.memory.tokens, methods=offered, count=estimate_tokens)
    prompt = "" if told.empty else render("memory", recall=told)
    standings = [standing(groups) for groups in grouped(seen_from(records, scope, now, found.versions))]
    order = {"blocked": 0, "preferred": 1, "not told": 2}
    standings.sort(key=lambda s: (order[s.status], -s.group.expected, s.group.newest.stored.id))
    data = {
        "scope": asdict(scope),
        "versions": found.versions,
        "tokens": estimate_tokens(prompt),
        "prompt": prompt,
        "more_blocked": told.more_blocked,
        "strategies": [_as_json(s, scope) for s in standings],
        "priors": [asdict(p) for p in told_of.priors],
    }
    counts = f"related strategies: {len(standings)}, records in all: {len(records)}"
    head = f"{config.task.name} is {describe(scope)}; {counts}."
    body = (
        f"A prompt would be told ({data['tokens']} tokens):\n\n{prompt}"
        if prompt
        else "A prompt would be told nothing."
    )
    why = "\n".join(_why(s, scope) for s in standings)
    return data, "\n\n".join(part for part in (head, body.rstrip(), why and f"Why:\n{why}") if part)


def _arch(config: Config, backend: Backend) -> str:
    if backend.device != "gpu":
        return platform.machine()
    if config.device.arch != "auto":
        return config.device.arch
    try:
        return find_gpu(config.device.gpus[0] if config.device.gpus else 0).arch
    except ToolchainError:
        raise ConfigError(
            f"memory explain: {backend.name} kernels run on a GPU and none is here; name one with --arch, such as sm_90"
        ) from None


def _as_json(found: Standing, scope: Scope) -> dict[str, object]:
    group = found.group
    record, newest = group.record, group.newest
    return {
        "status": found.status,
        "why": found.why,
        "methods": record.strategy.methods,
        "parameters": record.strategy.parameters,
        "fingerprint": newest.stored.fingerprint,
        "record": newest.stored.id,
        "records": [seen.stored.id for seen in group.latest],
        "scope": asdict(record.scope),
        "distance": newest.distance,
        "terms": terms(record.scope, scope),
        "weight": newest.weight,
        "expected": math.exp(group.expected),
        "runs": len(group.latest),
        "agree": group.agree,
        "together": record.together,
        "evidence": pooled_evidence(group),
    }


def _why(found: Standing, scope: Scope) -> str:
    group = found.group
    strategy = group.record.strategy
    what = strategy_shown(strategy.methods, strategy.parameters)
    parts = [f"{name} {value:.2f}" for name, value in terms(group.record.scope, scope).items() if value]
    distance = f" Distance: {', '.join(parts)}." if parts else ""
    return f"  {found.status:<9}  record {group.newest.stored.id}, {what}: {found.why}.{distance}"
