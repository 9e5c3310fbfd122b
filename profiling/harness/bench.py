"""A worker at one case: calls are staged, run, and taken home one frame at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import torch

from profiling.device import gpu_worker_cores, pinned_cores
from profiling.findings import Conditions
from profiling.harness.arena import Arena, Layout, RandomBytes, out_of_memory
from profiling.harness.inputs import Draw, InputMaker, Pools
from profiling.harness.launcher import Launcher
from profiling.harness.memory import Device
from profiling.harness.reference import Reference
from profiling.harness.worker import CandidateFailure, Worker
from profiling.types import Case, Limits, Problem, TaskError, Tolerance

_RING_SLOTS = 256
_LEAD_US = {"cpp": 0, "cuda": 20, "triton": 300}  # Python takes tens of microseconds to launch a kernel
_OWN_BYTES = 2 << 30  # more than a worker takes without its candidate, a CUDA context included
_GIVEN_BACK_S = 3.0
_MARGIN_S = 60.0  # on top of a worker's own limit, which we watch ourselves


@dataclass(slots=True)
class Rig:
    """What all workers of an oracle have in common.

    Attributes:
        problem: the task.
        reference: its reference, or None.
        tolerance: in force, None without a reference.
        empty: a kernel that does nothing.
        device: where the tensors lie.
        launcher: starts workers.
        limits: around each worker.
        cores: that workers run on.
        noise, pools: secret bytes and numbers.
        seed: draws a secret seed.
        phase: tells the controller that something begins that may take this many seconds.
    """

    problem: Problem
    reference: Reference | None
    tolerance: Tolerance | None
    empty: Path
    device: Device
    launcher: Launcher
    limits: Limits
    cores: tuple[int, ...]
    noise: RandomBytes
    pools: Pools
    seed: Callable[[], int]
    phase: Callable[[str, float], None]

    @property
    def lead_us(self) -> int:
        """How long a GPU is held before a timed call: longer than launching takes, 0 on the host."""
        return _LEAD_US[self.problem.backend]

    def inputs(self, case: Case) -> InputMaker:
        """The maker of a case's inputs."""
        return InputMaker(case, self.reference.inputs() if self.reference else None, self.pools)


@dataclass(frozen=True, slots=True)
class Record:
    """One call: what made its inputs, what it is called in reasons, its times, its outputs in our own memory."""

    draw: Draw
    where: str
    nanoseconds: int
    event_ns: int
    outputs: Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Frame:
    """Calls run in one exchange with the worker, that exchange by our clock, and how long it lacked a core.

    `conditions` is how a GPU fared as they ended.
    """

    records: tuple[Record, ...]
    outside_ns: int
    waited_ns: int
    conditions: Conditions | None

    @property
    def own_ns(self) -> int:
        """The calls together, by the worker's clock."""
        return sum(r.nanoseconds for r in self.records)


def worker_cores(threads: int, device: Device) -> tuple[int, ...]:
    """The cores that workers are pinned to: those that the ceilings were measured on.

    A kernel on a GPU is not measured on cores: its worker, with the driver's threads, may use all but the first.

    Raises:
        TaskError: there are not that many.
    """
    if device.one_by_one:
        return gpu_worker_cores()
    try:
        return pinned_cores(threads)
    except ValueError as error:
        raise TaskError(str(error)) from None


def _checking_bytes(layout: Layout) -> int:
    """What judging one call takes: float64 copies of all there is."""
    return 4 * 8 * sum(t.elements for t in layout.case.tensors)


def has_room(layout: Layout, device: Device) -> bool:
    """Whether one call and its check take no more than half of what is free."""
    return 2 * (layout.slot_bytes + _checking_bytes(layout)) <= device.available()


def plan_slots(layout: Layout, device: Device) -> int:
    """How many slots an arena gets: two or more where memory allows.

    Raises:
        TaskError: not even one call's data, its float64 copies and its outputs fit in memory.
    """
    copies = _checking_bytes(layout)
    need, have = layout.slot_bytes + copies, device.available()
    if need > have:
        raise TaskError(
            f"dims {dict(layout.case.dims)}: one call and its check needs {need / 2**30:.1f} GiB, "
            f"have {have / 2**30:.1f} GiB: use smaller dims"
        )
    wanted = max(2, min(_RING_SLOTS, device.ring_bytes // layout.slot_bytes))
    budget = min(device.arena_bytes, (have - copies) // 2)
    return max(1, min(wanted, budget // layout.slot_bytes))


class Bench:
    """A worker with its arena. The worker starts at once; entering the context waits for it, leaving it kills it.

    Args:
        rig: what all workers have in common.
        artifact: the candidate.
        case: what it is called with.
        slots: at most this many calls a frame, None for as many as are useful.
        then: cases that it may be rebound to.

    Raises:
        CandidateFailure: on entering: the candidate cannot be loaded; on leaving: it held memory that we then lacked.
        HarnessFault: the worker cannot be started.
    """

    def __init__(
        self, rig: Rig, artifact: Path, case: Case, slots: int | None = None, then: Sequence[Case] = ()
    ) -> None:
        self._rig = rig
        self._ready = False
        layout = self._layout(case)
        planned = plan_slots(layout, rig.device)
        self.slots = min(planned, slots) if slots else planned
        room = max((self._layout(c).slot_bytes for c in then), default=0)
        self._arena = Arena(layout, self.slots, rig.noise, rig.device, room)
        named = rig.problem.backend == "triton"
        try:
            self._worker = Worker(rig.launcher, artifact, self._arena, rig.cores, rig.limits, named=named)
        except BaseException:
            self._arena.close()
            raise

    def _layout(self, case: Case) -> Layout:
        return Layout.of(case, self._rig.device.align, self._rig.device.gap)

    def ready(self) -> None:
        """Wait until the candidate is loaded, and its process stands still."""
        if not self._ready:
            self._rig.phase("worker", self._rig.limits.call_s + _MARGIN_S)
            self._worker.ready()
            self._ready = True

    def __enter__(self) -> Bench:
        try:
            self.ready()
        except BaseException:
            self.close()
            raise
        self._cores = os.sched_getaffinity(0)
        # Off the worker's cores, where there are others. This thread alone: those that torch computes with stay.
        os.sched_setaffinity(0, self._cores - set(self._rig.cores) or self._cores)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.sched_setaffinity(0, self._cores)
        try:
            if error is not None and out_of_memory(error):
                self._blame_hoarder()
        finally:
            self.close()

    def doom(self) -> None:
        """Have the worker killed without waiting for its end."""
        self._worker.doom()

    def close(self) -> None:
        """Kill the worker and give the arena up. Safe to call twice."""
        self._worker.kill()
        self._arena.close()

    def rebind(self, case: Case) -> None:
        """Call with one slot of another case's arguments from now on; one of `then`."""
        self.slots = 1
        self._arena.rebind(self._layout(case), 1)
        self._worker.rebind(self._arena)

    def _blame_hoarder(self) -> None:
        """No memory was left for us: kill the worker, and raise CandidateFailure if that gives much of it back."""
        before = self._rig.device.available()
        self._worker.kill()
        # A driver takes the memory back a while after the process is gone.
        deadline = time.monotonic() + _GIVEN_BACK_S
        while (held := self._rig.device.available() - before) <= _OWN_BYTES and time.monotonic() < deadline:
            time.sleep(0.05)
        if held > _OWN_BYTES:
            raise CandidateFailure(
                f"held {held / 2**30:.1f} GiB of memory of its own, "
                "which left too little to check it: free what a call allocates"
            )

    @property
    def layers(self) -> Mapping[str, bool]:
        """The walls that stand around the worker."""
        return self._worker.layers

    def frame(
        self,
        draws: Sequence[tuple[Draw, Mapping[str, torch.Tensor]]],
        labels: Sequence[str],
        *,
        cold: bool,
        led: bool = False,
        together: bool = False,
    ) -> Frame:
        """Stage, run and take home one frame of at most `slots` calls.

        Args:
            draws: one per call, with the inputs it makes.
            labels: what each call is called in a reason.
            cold: flush the calls' buffers from the caches first.
            led: on a GPU, keep what launching costs the host out of the time.
            together: on a GPU, take the time of all calls as one, of which each has an equal share.

        Raises:
            CandidateFailure: a crash, a limit, or damage to inputs or guards.
        """
        for slot, (_, inputs) in enumerate(draws):
            self._arena.stage(slot, inputs)
        if cold:
            self._rig.device.flush([r for slot in range(len(draws)) for r in self._arena.ranges(slot)])
        count = len(draws)
        self._rig.phase("worker", self._rig.limits.call_s * count + _MARGIN_S)
        lead_us = self._rig.lead_us if led else 0
        homes = [self._arena.homes() for _ in range(count)]
        self._rig.device.settle()
        taken: list[dict[str, torch.Tensor]] = []

        def take() -> None:
            taken.extend(self._arena.outputs(slot, homes[slot]) for slot in range(count))
            self._rig.device.settle()

        alone = self._rig.device.one_by_one and together and count == 1  # taking many home would blur what they say
        taking = take if alone else None
        where = _span(labels)
        reply = self._worker.run(0, count, where, lead_us, flush=cold and led, together=together, take=taking)
        if not alone:
            take()
        conditions = self._rig.device.conditions()
        records = []
        for slot, (draw, _) in enumerate(draws):
            damage = self._arena.damage(slot)
            if damage is not None:
                raise CandidateFailure(f"{damage} in {labels[slot]}")
            call = reply.calls[slot]
            records.append(Record(draw, labels[slot], call.nanoseconds, call.event_nanoseconds, taken[slot]))
        return Frame(tuple(records), reply.outside_ns, reply.waited_ns, conditions)

    def rerun(self, count: int, where: str) -> tuple[int, int]:
        """Run the first `count` slots as they lie, outputs unlooked at: the worker's and our nanoseconds."""
        self._rig.phase("worker", self._rig.limits.call_s * count + _MARGIN_S)
        reply = self._worker.run(0, count, where)
        return sum(c.nanoseconds for c in reply.calls), reply.outside_ns

    def bundle(self, inputs: Mapping[str, torch.Tensor], *, apart: bool = False) -> tuple[bytes, bytes]:
        """A setup frame of one slot, and that slot's bytes with these inputs, for `runner --solo`.

        `apart`: each tensor is to have memory of its own, as a sanitizer needs it.
        """
        self._arena.stage(0, inputs)
        named = self._rig.problem.backend == "triton"
        layout, cores = self._arena.layout, self._rig.cores
        setup = layout.setup_apart(cores, named=named) if apart else layout.setup(0, 1, cores, named=named)
        return setup, self._arena.image(0)


def _span(labels: Sequence[str]) -> str:
    """What calls are called together."""
    return labels[0] if len(labels) == 1 else f"{labels[0]} to {labels[-1]}"
