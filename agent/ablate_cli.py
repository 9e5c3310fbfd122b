"""`ablate`: what each method of a kernel gains, by building it with the method's switch off. No model is asked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from agent.artefacts import plain, read_source
from agent.asked import Asked
from agent.config import Config
from agent.errors import ConfigError, UnfitEnvironment
from agent.events import AblationBuilt, Attribution
from agent.inspection import draw
from agent.lab import Lab, backend_name, existing, find_subject, open_lab, timed
from agent.machine_code import MachineCode
from agent.stages.ablation import Ablation, Variant
from agent.stages.attribution import attribute
from agent.stages.switches import ALL, switched_off
from backends.registry import get_backend
from backends.types import Backend, Built, Rejected
from profiling.findings import AXES, Axis, Comparison, MethodPresence
from profiling.machine_code import check_methods
from prompts.catalogue import load_catalogue, switch_name

_SWITCH = re.compile(r"\bRC_[A-Z0-9_]+\b")
_ID = re.compile(rf"({'|'.join(AXES)})\.[a-z0-9_]{{1,48}}")


@dataclass(frozen=True, slots=True)
class _Pair:
    """A kernel, and the one that its methods were applied to."""

    config: Config
    kernel: Path
    base: Path


@dataclass(frozen=True, slots=True)
class _Methods:
    """What is turned off.

    Attributes:
        ids: one by one.
        all: whatever the kernel has a switch for and its base has not; a switch that is no known method's by its name.
        unknown: the switches among them that are no known method's.
    """

    ids: tuple[str, ...]
    all: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """What came of it."""

    gain: Comparison
    spread: float
    smallest_gain: float
    rows: tuple[Attribution, ...]
    audit: str | None
    presence: tuple[MethodPresence, ...]
    ablations: Mapping[str, Ablation]


def ablate(asked: Asked, against: Path | None, named: Sequence[str]) -> tuple[Mapping[str, Any], str]:
    """Build a kernel without each of its methods, and compare each of these with it.

    Args:
        asked: the kernel.
        against: the kernel that the methods were applied to; None for the task's baseline.
        named: catalogue ids, or declared ones; empty for every switch of the kernel that `against` has not.

    Raises:
        ConfigError, UnfitEnvironment, HarnessBroken: as the exit codes say.
    """
    pair = _pair(asked, against)
    methods = _methods(get_backend(backend_name(pair.config)), pair, named)
    with open_lab(pair.config) as lab:
        found = _measure(lab, pair, methods)
    notes = [*lab.task.notes, *(_hint(switch) for switch in methods.unknown)]
    data = {
        "kernel": str(pair.kernel),
        "against": str(pair.base),
        "backend": lab.task.backend.name,
        "kernel_ms": found.gain.b_ms,
        "against_ms": found.gain.a_ms,
        "speedup": found.gain.speedup,
        "speedup_interval": [found.gain.low, found.gain.high],
        "gain_ms": found.gain.delta_ms,
        "aa_spread": found.spread,
        "smallest_gain": found.smallest_gain,
        "audit": found.audit,
        "methods": [_row(row, found) for row in found.rows],
        "notes": notes,
    }
    return data, _text(pair, found, notes)


def _pair(asked: Asked, against: Path | None) -> _Pair:
    if asked.kernel is not None and against is None:
        raise ConfigError("ablate: give the kernel that the methods were applied to with --against")
    if asked.config is not None and asked.candidate is None:
        raise ConfigError("ablate: give the kernel with --kernel; the task file's own is the one it is held against")
    kernel = asked.kernel or asked.candidate
    # Without a task file the kernel before is the baseline, whose signature and errors the kernel is held to.
    subject = find_subject(asked if asked.kernel is None else replace(asked, kernel=against), "ablate")
    if subject.config.task.reference is None:
        raise ConfigError("ablate: needs a reference (--ref, task.reference): the time of a wrong kernel says nothing")
    assert kernel is not None
    return _Pair(subject.config, existing(kernel), existing(against or subject.config.task.baseline))


def _methods(backend: Backend, pair: _Pair, named: Sequence[str]) -> _Methods:
    catalogue = load_catalogue()
    known = {switch_name(m.id): m.id for m in catalogue.methods if backend.name in m.backends}
    known |= {switch_name(method): method for method in named}
    source, base = read_source(pair.kernel), read_source(pair.base)
    switches = [s for s in dict.fromkeys(_SWITCH.findall(source)) if backend.has_switch(source, s)]
    own = [s for s in switches if not backend.has_switch(base, s)]
    for method in named:
        switch = switch_name(method)
        if not catalogue.known(method, backend.name) and (switch not in switches or not _ID.fullmatch(method)):
            raise ConfigError(f"no method `{method}` for {backend.name}; the nearest is `{catalogue.nearest(method)}`")
        if switch not in switches:
            raise ConfigError(f"{pair.kernel}: has no switch for {method}; put its code behind {switch}")
        if switch not in own:
            raise ConfigError(f"{pair.base}: has {switch} too; name a kernel without it with --against")
    unknown = tuple(s for s in own if s not in known)
    ids = tuple(dict.fromkeys(named)) or tuple(known[s] for s in own if s in known)
    if not ids:
        raise ConfigError(f"{pair.kernel}: has no method's switch (RC_…) that {pair.base} has not{_or_hints(unknown)}")
    return _Methods(ids, tuple(known.get(s, s.removeprefix("RC_").lower()) for s in own), unknown)


def _or_hints(unknown: Sequence[str]) -> str:
    return "".join(f"; {_hint(switch)}" for switch in unknown)


def _hint(switch: str) -> str:
    return f"{switch} is no known method's: name it with its axis, --method AXIS.{switch.removeprefix('RC_').lower()}"


def _measure(lab: Lab, pair: _Pair, methods: _Methods) -> _Found:
    task, harness = lab.task, lab.harness
    lab.check_task(lab.build_baseline())
    without = {**{m: (m,) for m in methods.ids}, ALL: methods.all}
    specs = [(pair.kernel, switched_off(task.spec, off)) for off in without.values()]
    kernel, base, *others = lab.build([(pair.kernel, task.spec), (pair.base, task.spec), *specs])
    for path, built in ((pair.base, base), (pair.kernel, kernel)):
        timed(path, built if isinstance(built, Rejected) else harness.evaluate(built.artifact))
    assert isinstance(kernel, Built)
    assert isinstance(base, Built)
    spread = harness.aa_spread(kernel.artifact)
    if isinstance(spread, Rejected) and spread.stage != "time":
        raise ConfigError(f"{pair.kernel} cannot be compared with itself: {spread.reason}")
    if isinstance(spread, Rejected):
        raise UnfitEnvironment(f"the noise cannot be measured here: {spread.reason}; is the machine busy?")
    code = MachineCode(task.backend)
    wholes = {name: base if name == ALL else kernel for name in without}
    variants = {n: _variant(code, n, built, wholes[n]) for n, built in zip(without, others, strict=True)}
    pairs = {"": (base.artifact, kernel.artifact)}
    for name, variant in variants.items():
        if variant.comparable is not None:
            pairs[name] = (variant.comparable.artifact, wholes[name].artifact)
    outcomes = dict(zip(pairs, harness.compare_all(list(pairs.values())), strict=True))
    gain = outcomes[""]
    if isinstance(gain, Rejected):
        kind = UnfitEnvironment if gain.stage == "time" else ConfigError
        raise kind(f"{pair.kernel} cannot be compared with {pair.base}: {gain.reason}")
    ablations = {name: Ablation(variant.event, outcomes.get(name)) for name, variant in variants.items()}
    presence = check_methods(methods.ids, code.device(base), code.device(kernel))
    smallest = max(pair.config.search.noise, spread)
    complete = len(methods.ids) == len(methods.all)
    rows, audit = attribute(
        {m: _axis(m) for m in methods.ids}, presence, ablations, gain if complete else None, smallest
    )
    return _Found(gain, spread, smallest, rows, audit, presence, ablations)


def _variant(code: MachineCode, name: str, built: Built | Rejected, whole: Built) -> Variant:
    """A kernel with something off, and whether it differs from what it is compared with."""
    about = AblationBuilt(key=name, iteration=0, method=name, form="switch", source=None, code_differs=None)
    if isinstance(built, Rejected):
        return Variant(about.model_copy(update={"rejected": built}), built)
    return Variant(about.model_copy(update={"code_differs": code.differs(built, whole)}), built)


def _axis(method: str) -> Axis:
    return next(axis for axis in AXES if method.startswith(f"{axis}."))


def _row(row: Attribution, found: _Found) -> Mapping[str, Any]:
    presence = next(p for p in found.presence if p.method == row.method)
    about = found.ablations[row.method]
    return {
        **plain(row),
        "switch": switch_name(row.method),
        "code_differs": about.built.code_differs,
        "machine_code": plain(presence),
    }


def _text(pair: _Pair, found: _Found, notes: Sequence[str]) -> str:
    gain = found.gain
    table = Table("method", "class", "attribution", "95% interval", "machine code")
    for row in found.rows:
        effect = "unknown" if row.attribution_ms is None else f"{row.attribution_ms:+.4g} ms"
        interval = "" if row.attribution_ms is None else f"{row.low_ms:+.4g} … {row.high_ms:+.4g}"
        table.add_row(row.method, row.method_class, effect, interval, row.presence)
    return "\n".join(
        [
            f"{pair.kernel}: {gain.b_ms:.4g} ms, {gain.speedup:.3f}x [{gain.low:.3f}, {gain.high:.3f}] over "
            f"{pair.base} ({gain.a_ms:.4g} ms)",
            draw(table),
            *(f"{row.method}: {row.reason}" for row in found.rows),
            f"switch audit {found.audit}",
            f"no gain under {found.smallest_gain:.3f} is claimed (A/A spread {found.spread:.3f})",
            *notes,
        ]
    )
