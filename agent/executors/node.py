"""What a node of a cluster does: an order in JSON comes in, a reply in JSON goes out. It knows nothing of the cluster.

Candidates are built and run behind the same walls as in a run: this process only ever handles their bytes.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from agent.contract import Contract
from agent.executors.parcels import BadParcel, pack, unpack
from agent.executors.station import Station, Unfit
from agent.executors.wire import Bench, BuildOrder, BuildReply, EvaluateOrder, EvaluateReply, Refused
from agent.machine import Machine
from agent.paths import cache_folder
from agent.task import triton_parts
from backends.registry import get_backend
from backends.types import Rejected, SourceError, ToolchainError
from profiling.device import cpu_facts
from profiling.gpu_device import entries, find_gpu
from profiling.harness.harness import Harness
from profiling.types import HarnessFault, TaskError

Fetch = Callable[[str], bytes]
"""Contents by digest."""

_CANNOT = (ToolchainError, SourceError, HarnessFault, TaskError, BadParcel, Unfit, OSError)
_IDLE_S = 300.0


def build(order: bytes, fetch: Fetch) -> bytes:
    """Build a candidate: a `BuildOrder` to a `BuildReply` or `Refused`."""
    refusal = _other_version(order)
    if refusal is not None:
        return refusal.model_dump_json().encode()
    try:
        reply: BuildReply | Refused = _build(BuildOrder.model_validate_json(order), fetch)
    except _CANNOT as error:
        reply = Refused(reason=f"{_host()}: {error}")
    return reply.model_dump_json().encode()


def evaluate(order: bytes, fetch: Fetch) -> bytes:
    """Evaluate a kernel: an `EvaluateOrder` to an `EvaluateReply` or `Refused`."""
    refusal = _other_version(order)
    if refusal is not None:
        return refusal.model_dump_json().encode()
    try:
        reply: EvaluateReply | Refused = _STATIONS.evaluate(EvaluateOrder.model_validate_json(order), fetch)
    except _CANNOT as error:
        reply = Refused(reason=f"{_host()}: {error}")
    return reply.model_dump_json().encode()


def give_back() -> None:
    """End what this process has open."""
    _STATIONS.close()


def _other_version(order: bytes) -> Refused | None:
    """Before anything else of an order is read: another version may mean something else by it."""
    found = json.loads(order)
    asked, here = found.get("version", found.get("bench", {}).get("version")), version("roofclimb")
    if asked == here:
        return None
    return Refused(reason=f"{_host()}: has Roofclimb {here}, and the run {asked}: install the same on all nodes")


def _build(order: BuildOrder, fetch: Fetch) -> BuildReply | Refused:
    backend, cache = get_backend(order.backend), cache_folder()
    tools = dict(backend.toolchain())
    other = next((name for name in {**order.toolchain, **tools} if tools.get(name) != order.toolchain.get(name)), None)
    if other is not None:
        here, there = tools.get(other, "none"), order.toolchain.get(other, "none")
        return Refused(reason=f"{_host()}: {other} is {here}, and {there} for the run: install the same everywhere")
    store = cache / "parcels"
    source = unpack(order.source, fetch, store)
    includes = tuple(unpack(parcel, fetch, store) for parcel in order.includes)
    spec = replace(order.spec, include=includes, hidden=(cache,))
    contract = Contract(backend, order.signature, order.libraries)
    outcome = contract.build(source, spec, cache / "builds")
    if isinstance(outcome, Rejected):
        return BuildReply(outcome=outcome)
    artifact, contents = pack(outcome.artifact)
    sent = {name: base64.b64encode(data).decode() for name, data in contents.items()}
    return BuildReply(outcome=replace(outcome, artifact=Path(artifact.name)), artifact=artifact, contents=sent)


class _Stations:
    """The one device that this process has open. Idle for five minutes it is given back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key = ""
        self._station: Station | None = None
        self._timer: threading.Timer | None = None

    def evaluate(self, order: EvaluateOrder, fetch: Fetch) -> EvaluateReply | Refused:
        """Evaluate, on a device that is opened first if need be."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            machine = _machine(order.bench)
            if machine.name != order.bench.device:
                return Refused(
                    reason=f"{_host()}: has {machine.name}, and the run {order.bench.device}: their times say nothing "
                    "of each other; name what a node must have in executor.resources"
                )
            store = cache_folder() / "parcels"
            try:
                station = self._open(order.bench, machine, fetch, store)
                base_ms = station.time_of(order.base_key, unpack(order.base, fetch, store))
                found = station.evaluate([unpack(order.kernel, fetch, store)])[0]
            except (HarnessFault, OSError):
                self._close()  # whatever it was, the next one starts afresh
                raise
            self._timer = threading.Timer(_IDLE_S, self.close)
            self._timer.daemon = True
            self._timer.start()
        device = _host() if machine.gpu is None else f"{_host()} GPU {machine.gpu.uuid}"
        return EvaluateReply(evaluation=found, device=device, base_ms=base_ms)

    def close(self) -> None:
        """Give the device back."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._station is not None:
            self._station.close()
        self._station, self._key = None, ""

    def _open(self, bench: Bench, machine: Machine, fetch: Fetch, store: Path) -> Station:
        key = f"{machine.id} {bench.model_dump_json()}"
        if self._station is None or self._key != key:
            self._close()
            with _on_own_cores(machine):
                harness = _harness(bench, machine, unpack(bench.reference, fetch, store))
            try:
                self._station = Station(harness, unpack(bench.baseline, fetch, store), bench.floor_ms)
            except BaseException:
                harness.close()
                raise
            self._key = key
        return self._station


_STATIONS = _Stations()


def _harness(bench: Bench, machine: Machine, reference: Path) -> Harness:
    cache = cache_folder()
    gpu = None if machine.gpu is None else machine.gpu.uuid
    return Harness(
        replace(bench.problem, reference=reference, gpu=gpu),
        bench.settings,
        bench.limits,
        cache / "harness",
        environment=machine.worker_environment(),
        triton=triton_parts(bench.arch, cache) if bench.problem.backend == "triton" else None,
    )


def _machine(bench: Bench) -> Machine:
    """What the cluster gave this process. Raises ToolchainError: no GPU, where one is needed."""
    if get_backend(bench.backend).device == "cpu":
        return Machine(cpu_facts(), None)
    return _machine_with(os.environ.get("CUDA_VISIBLE_DEVICES", ""))


@functools.cache
def _machine_with(visible: str) -> Machine:
    """Asked once: the driver takes seconds to say what it has. `visible` is what Ray lets this process see."""
    return Machine(cpu_facts(), find_gpu(0))


@contextmanager
def _on_own_cores(machine: Machine) -> Iterator[None]:
    """What starts here gets the GPU's share of this node's cores, where there are enough to share."""
    allowed = sorted(os.sched_getaffinity(0))
    if machine.gpu is not None:
        gpus = max(len(entries()), machine.gpu.index + 1)
        share = len(allowed) // gpus
        if share >= 3:
            os.sched_setaffinity(0, allowed[machine.gpu.index * share : (machine.gpu.index + 1) * share])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _host() -> str:
    return socket.gethostname()
