"""A run's tasks as orders to a node, and a node's replies as results."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from agent.executors.parcels import Parcel, pack, unpack
from agent.executors.types import BuildTask, Setting
from agent.executors.wire import Bench, BuildOrder, BuildReply, EvaluateOrder
from agent.machine import Machine
from agent.task import Task, limits, measure_settings
from backends.types import Built, Rejected

Contents = Mapping[str, bytes]
"""Bytes by digest."""

_HEADERS = {".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl", ".inc", ".ipp", ".tcc", ".def", ""}


@dataclass(slots=True)
class Writer:
    """Writes orders for one run.

    Attributes:
        task: the run's.
        machine: the run's.
        toolchain: what the run builds with.
    """

    task: Task
    machine: Machine
    toolchain: Mapping[str, str]
    _includes: list[tuple[Parcel, Contents]] | None = field(default=None)

    def build(self, task: BuildTask) -> tuple[BuildOrder, Contents]:
        """An order to build, and all that it names.

        Raises:
            BadParcel: the task's include folders hold too much.
            OSError: the source cannot be read.
        """
        source, contents = pack(task.source)
        includes = self._include_folders(task.spec.include)
        order = BuildOrder(
            version=version("roofclimb"),
            backend=self.task.backend.name,
            toolchain=self.toolchain,
            source=source,
            includes=tuple(parcel for parcel, _ in includes),
            spec=replace(task.spec, include=(), hidden=()),
            signature=self.task.signature,
            libraries=tuple(self.task.config.task.allow.libraries),
        )
        return order, _together(contents, *(found for _, found in includes))

    def bench(self, setting: Setting) -> tuple[Bench, Contents]:
        """What a device must know. Raises BadParcel, OSError."""
        problem = self.task.problem
        assert problem.reference is not None
        reference, first = pack(problem.reference)
        baseline, second = pack(setting.baseline.artifact)
        bench = Bench(
            version=version("roofclimb"),
            backend=self.task.backend.name,
            device=self.machine.name,
            arch=self.task.spec.arch,
            problem=replace(problem, reference=None, gpu=None),
            reference=reference,
            settings=measure_settings(self.task.config),
            limits=limits(self.task.config),
            baseline=baseline,
            floor_ms=setting.floor_ms,
        )
        return bench, _together(first, second)

    def _include_folders(self, folders: tuple[Path, ...]) -> list[tuple[Parcel, Contents]]:
        """Headers of the task, read once: the same for all its kernels."""
        if self._includes is None:
            hidden = [path.resolve() for path in self.task.spec.hidden]

            def admitted(path: Path) -> bool:
                if path.name.startswith(".") or any(path.resolve().is_relative_to(secret) for secret in hidden):
                    return False
                return path.is_dir() or path.suffix in _HEADERS

            self._includes = [pack(folder, admitted) for folder in folders]
        return self._includes


def evaluate_order(bench: Bench, known: Contents, kernel: Built, base: Built) -> tuple[EvaluateOrder, Contents]:
    """An order to evaluate, and all that it names. Raises BadParcel, OSError."""
    sent, first = pack(kernel.artifact)
    beside, second = pack(base.artifact)
    order = EvaluateOrder(bench=bench, base_key=base.key, base=beside, kernel=sent)
    return order, _together(known, first, second)


def stored(reply: BuildReply, store: Path) -> Built | Rejected:
    """A build that came from a node, on this machine.

    Raises:
        BadParcel: it is not what it says it is.
        OSError: it cannot be written.
    """
    if isinstance(reply.outcome, Rejected):
        return reply.outcome
    parcel = reply.artifact or Parcel(name="", files={})
    place = unpack(parcel, lambda name: base64.b64decode(reply.contents.get(name, "")), store)
    return replace(reply.outcome, artifact=place, cached=False)


def _together(*contents: Contents) -> dict[str, bytes]:
    return {name: data for found in contents for name, data in found.items()}
