"""The catalogue of optimisation methods: what a plan may name, when it pays, and what excludes what.

The methods are data (`prompts/methods/*.yaml`, one file per kind of machine). One id may stand in two files when the
idea is the same on both: `compute.loop_unroll` on a GPU and on a CPU differ in triggers and machine code, not in name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import combinations
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

Axis = Literal["compute", "memory", "latency"]
_AXES: tuple[Axis, ...] = ("compute", "memory", "latency")
_SM = re.compile(r"sm_(\d+)[a-z]?")


class CatalogueError(Exception):
    """A methods file that contradicts itself or its schema. The message names the file and the entry."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """A metric that calls for a method.

    Attributes:
        metric: as the profiler names it.
        when: whether a high or a low value calls for the method.
        why: a few words for the prompt.
    """

    metric: str
    when: Literal["high", "low"]
    why: str


@dataclass(frozen=True, slots=True)
class Method:
    """One optimisation method, on one kind of machine.

    Attributes:
        id: `axis.name`; what plans, switches, memory and signatures call it.
        axis: the axis of the roofline gap it works on.
        priority: 1 is to be considered first within its axis.
        title: a few words.
        description: what to do, when it pays, and the pitfall.
        triggers: the metrics that call for it.
        backends: the backends it can be written for.
        min_sm: lowest compute capability (90 is sm_90); 0 for any; None off the GPU.
        max_sm: the last compute capability that has what it needs; None where there is no end.
        hosts: CPU architectures it fits, each with the CPU features it needs; empty on a GPU.
        parameters: what a strategy may set (tile sizes, stages …).
        conflicts: ids that cannot stand in one plan with it.
        coupled: ids of the same idea under another name: a plan counts only one of them.
        signature: `opcodes` when it shows in machine code, `none` when presence is a difference of code.
    """

    id: str
    axis: Axis
    priority: int
    title: str
    description: str
    triggers: tuple[Trigger, ...]
    backends: tuple[str, ...]
    min_sm: int | None
    max_sm: int | None
    hosts: Mapping[str, tuple[str, ...]]
    parameters: tuple[str, ...]
    conflicts: tuple[str, ...]
    coupled: tuple[str, ...]
    signature: Literal["opcodes", "none"]

    def features(self, arch: str) -> tuple[str, ...]:
        """CPU features it needs on `arch` (`avx2`, `fma`), by the names of `/proc/cpuinfo`, and `multicore`."""
        return self.hosts.get(arch, ())

    def fits(self, backend: str, arch: str) -> bool:
        """Whether it can be applied by `backend` on `arch` (`x86_64`, `aarch64`, `sm_90a`)."""
        if backend not in self.backends:
            return False
        gpu = _SM.fullmatch(arch)
        if gpu is not None:
            capability = int(gpu.group(1))
            last = capability if self.max_sm is None else self.max_sm
            return self.min_sm is not None and self.min_sm <= capability <= last
        return arch in self.hosts


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All methods, in the order of the files."""

    methods: tuple[Method, ...]

    def get(self, method_id: str, backend: str | None = None) -> Method:
        """The method by id, in its form for `backend` where one is given.

        Raises:
            LookupError: no such method (there); the message names the nearest.
        """
        for method in self.methods:
            if method.id == method_id and (backend is None or backend in method.backends):
                return method
        where = "" if backend is None else f" for backend {backend!r}"
        raise LookupError(
            f"no method {method_id!r} in the catalogue{where}; the nearest is {self.nearest(method_id)!r}"
        )

    def known(self, method_id: str, backend: str | None = None) -> bool:
        """Whether the catalogue holds the id (for `backend`, where one is given)."""
        return any(m.id == method_id and (backend is None or backend in m.backends) for m in self.methods)

    def nearest(self, method_id: str) -> str:
        """The known id most like `method_id`, for error messages: the right name on the wrong axis counts as near."""
        name = method_id.split(".", 1)[-1]

        def likeness(known: str) -> float:
            whole = difflib.SequenceMatcher(None, method_id, known).ratio()
            return whole + difflib.SequenceMatcher(None, name, known.split(".", 1)[-1]).ratio()

        return max(sorted({m.id for m in self.methods}), key=likeness)

    def select(
        self,
        backend: str,
        arch: str,
        axes: Collection[Axis] | None = None,
        features: Collection[str] | None = None,
    ) -> tuple[Method, ...]:
        """Methods that fit, by axis, then priority.

        Args:
            backend: `cpp`, `cuda`, `cutlass` or `triton`.
            arch: `x86_64`, `aarch64`, or a compute capability such as `sm_90a`, compared as a number.
            axes: only these axes; None for all.
            features: what there is of such features; methods that need others are left out. None: nothing is left out.
        """
        chosen = (
            m
            for m in self.methods
            if m.fits(backend, arch)
            and (axes is None or m.axis in axes)
            and (features is None or set(m.features(arch)) <= set(features))
        )
        return tuple(sorted(chosen, key=lambda m: (_AXES.index(m.axis), m.priority, m.id)))

    def coupled(self, ids: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Pairs among `ids` that are one idea under two names."""
        return self._pairs(ids, ((m.id, m.coupled) for m in self.methods))

    def conflicting(self, ids: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Pairs among `ids` that exclude each other."""
        return self._pairs(ids, ((m.id, m.conflicts) for m in self.methods))

    def _pairs(self, ids: Sequence[str], related: Iterable[tuple[str, Sequence[str]]]) -> tuple[tuple[str, str], ...]:
        # An id may stand in several files, each with relations of its own.
        pairs = {frozenset((method, other)) for method, others in related for other in others}
        return tuple((a, b) for a, b in combinations(dict.fromkeys(ids), 2) if frozenset((a, b)) in pairs)


def switch_name(method_id: str) -> str:
    """The compile-time switch of a method: `memory.tiling_cache` is `RC_TILING_CACHE`."""
    name = method_id.split(".", 1)[-1]
    return "RC_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _TriggerEntry(_Strict):
    metric: str
    when: Literal["high", "low"]
    why: str


class _MethodEntry(_Strict):
    id: str = Field(pattern=r"^(compute|memory|latency)\.[a-z0-9_]+$")
    priority: int = Field(ge=1)
    title: str
    description: str
    triggers: tuple[_TriggerEntry, ...] = Field(min_length=1)
    backends: tuple[str, ...] | None = None
    min_sm: int | None = None
    max_sm: int | None = None
    hosts: dict[str, tuple[str, ...]] | None = None
    parameters: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    coupled: tuple[str, ...] = ()
    signature: Literal["opcodes", "none"]


class _MethodsFile(_Strict):
    backends: tuple[str, ...]
    hosts: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    methods: tuple[_MethodEntry, ...]


@lru_cache(maxsize=1)
def load_catalogue() -> Catalogue:
    """Read the catalogue that ships with the package (once per process).

    Raises:
        CatalogueError: a file is not valid YAML, breaks the schema, or names a method that does not exist.
    """
    folder = resources.files("prompts").joinpath("methods")
    methods: list[Method] = []
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".yaml"):
            methods.extend(parse_methods(file.read_text(encoding="utf-8"), file.name))
    _check(methods)
    return Catalogue(tuple(methods))


def parse_methods(text: str, name: str) -> tuple[Method, ...]:
    """Methods of one file.

    Args:
        text: the YAML.
        name: of the file, for messages.

    Raises:
        CatalogueError: not YAML, or not of the schema.
    """
    try:
        file = _MethodsFile.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise CatalogueError(f"{name}: not valid YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise CatalogueError(f"{name}: {place}: {first['msg']}") from error
    return tuple(_method(entry, file) for entry in file.methods)


def _method(entry: _MethodEntry, file: _MethodsFile) -> Method:
    prefix = entry.id.split(".", 1)[0]
    return Method(
        id=entry.id,
        axis=next(axis for axis in _AXES if axis == prefix),
        priority=entry.priority,
        title=entry.title,
        description=entry.description.strip(),
        triggers=tuple(Trigger(t.metric, t.when, t.why) for t in entry.triggers),
        backends=entry.backends or file.backends,
        min_sm=entry.min_sm,
        max_sm=entry.max_sm,
        hosts=file.hosts if entry.hosts is None else entry.hosts,
        parameters=entry.parameters,
        conflicts=entry.conflicts,
        coupled=entry.coupled,
        signature=entry.signature,
    )


def _check(methods: Iterable[Method]) -> None:
    """Every id stands once per backend, and relations name methods that exist."""
    methods = tuple(methods)
    ids = {m.id for m in methods}
    seen: set[tuple[str, str]] = set()
    for method in methods:
        for backend in method.backends:
            if (method.id, backend) in seen:
                raise CatalogueError(f"{method.id} stands twice for backend {backend!r}")
            seen.add((method.id, backend))
        for other in (*method.conflicts, *method.coupled):
            if other not in ids or other == method.id:
                raise CatalogueError(f"{method.id} names {other!r}, which is not another method of the catalogue")
