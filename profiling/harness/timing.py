"""Samples of one kernel by both clocks. Raw nanoseconds: the controller judges them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from profiling.findings import CaseCheck
from profiling.harness.bench import Bench, Frame, Record, Rig
from profiling.harness.inputs import Draw
from profiling.harness.statistics import settled
from profiling.harness.verify import Verifier, described
from profiling.harness.wire import FrameTimes, Round, Times
from profiling.harness.worker import CandidateFailure
from profiling.types import MeasureSettings

_FRAME_NS = 400_000  # calls are put together until a frame is well above what waking a worker costs
_ROUND_NS = 500_000
_ROUNDS = 5
_ROUND_CALLS = 64
_BATCH_NS = 200_000  # what ends a batch on a GPU varies by a microsecond or two
_EMPTY_FRAMES = 15
_WARM_NS, _WARM_CALLS = 2_000_000, 16  # of an exchange that warms up
_WARM_WALL = 4.0  # a warm-up of `warmup_ms` takes at most this many times as long by the wall clock


@dataclass(slots=True)
class Timer:
    """Times kernels on the timed case.

    Attributes:
        rig: what it works with.
        settings: how long, cold or hot.
        verifier: judges every timed call.
    """

    rig: Rig
    settings: MeasureSettings
    verifier: Verifier
    _empty: dict[tuple[int, int], Times] = field(default_factory=dict)

    def start(self, artifact: Path) -> Bench:
        """A worker for `measure`, which starts while something else is looked at."""
        return Bench(self.rig, artifact, self.rig.problem.timed)

    def measure(self, artifact: Path, started: Bench | None = None) -> tuple[Times | None, Times | None, CaseCheck]:
        """Warm up, sample until it is enough, then take the outside clock's rounds.

        Args:
            artifact: the kernel.
            started: its worker, where there is one already; it is ended.

        Returns:
            The kernel's times, those of an empty `solve` in frames of as many calls, and the check of every call. On a
            failure the times are None.
        """
        frames: list[FrameTimes] = []
        rounds: tuple[Round, ...] = ()
        per_frame = 0
        start = time.monotonic()
        while True:
            records: list[Record] = []
            try:
                worker, started = started or self.start(artifact), None
                with worker as bench:
                    calls = Calls(bench, self.rig, records, sum(len(f.own_ns) for f in frames))
                    call_ns = self.warm_up(calls)
                    per_frame = per_frame or self.per_frame(_FRAME_NS, call_ns, bench.slots)
                    before = len(frames)
                    done = self._sample(calls, per_frame, frames, start)
                    # Rounds are kept to be judged, too: where much is already, by another worker, after one frame more.
                    crowded = 2 * calls.kept_bytes > self.rig.device.kept_bytes and len(frames) > before + 1
                    done = done and not crowded
                    if done:
                        rounds = self.rounds_for(frames, calls, bench.slots)
            except CandidateFailure as error:
                case = self.rig.problem.timed
                return None, None, CaseCheck(case.dims, "timed", False, described(error), None, None)
            check = self.verifier.judge_timed(records)
            if not check.passed:
                return None, None, check
            if done:
                empty = self.empty(per_frame, rounds[0].n if rounds else 1)
                return Times(frames=tuple(frames), rounds=rounds), empty, check

    def warm_up(self, calls: Calls, sharing: int = 1) -> float:
        """Nanoseconds of one call, after `warmup_ms` of calls whose inputs are never timed.

        So many kernels that sit together on one GPU warm it together, each for its share of the time.

        Inputs are used again here, so a kernel that remembers them looks endlessly fast: the wall clock ends that.
        """
        warm_ms = self.settings.warmup_ms / sharing
        end = time.monotonic() + _WARM_WALL * warm_ms / 1e3
        frame = calls.run(1, "warm-up call", cold=False, keep=False)
        spent = frame.own_ns
        call_ns = float(spent)
        slots = calls.bench.slots
        count = max(_calls_for(_FRAME_NS, call_ns, slots), _calls_for(_WARM_NS, call_ns, min(_WARM_CALLS, slots)))
        if count > 1:
            calls.run(count, "warm-up call", cold=False, keep=False)
        while spent < warm_ms * 1e6 and time.monotonic() < end:
            own, _ = calls.bench.rerun(count, "warm-up calls")
            spent += own
            call_ns = own / count
        return call_ns

    def per_frame(self, target_ns: float, call_ns: float, slots: int) -> int:
        """Calls of one timed frame: of one where the caches must be flushed for each call."""
        return 1 if self.rig.device.one_by_one else _calls_for(target_ns, call_ns, slots)

    def rounds_for(self, timed: Sequence[FrameTimes], calls: Calls, slots: int) -> tuple[Round, ...]:
        """Rounds for the outside clock, of as many calls as it takes to see what was `timed`, on at most `slots`.

        That is known afterwards alone: a call before might be made to take long, so that few look like enough.
        """
        fastest = min(sum(frame.own_ns) / len(frame.own_ns) for frame in timed)
        return self.rounds(calls, _calls_for(_ROUND_NS, fastest, min(_ROUND_CALLS, slots // 2)))

    def rounds(self, calls: Calls, n: int) -> tuple[Round, ...]:
        """Unflushed frames of n and 2n calls, each timed as if alone; none where two calls do not fit."""
        if calls.bench.slots < 2:
            return ()
        rounds = []
        for _ in range(_ROUNDS):
            one = calls.run(n, "call of a round", cold=False, led=True)
            two = calls.run(2 * n, "call of a round", cold=False, led=True)
            rounds.append(
                Round(n=n, own_n=one.own_ns, outside_n=one.outside_ns, own_2n=two.own_ns, outside_2n=two.outside_ns)
            )
        return tuple(rounds)

    @staticmethod
    def batch_of(call_ns: float, slots: int) -> int:
        """How many calls of so short a kernel are timed together on a GPU."""
        return _calls_for(_BATCH_NS, call_ns, min(_ROUND_CALLS, slots))

    def _sample(self, calls: Calls, per_frame: int, frames: list[FrameTimes], start: float) -> bool:
        """Sample into `frames`; False when what we keep grew too big, and another worker has to go on."""
        while True:
            cold = self.settings.l2 == "cold"
            frames.append(frame_times(calls.run(per_frame, "timed call", cold=cold, led=True, together=True)))
            samples = [float(ns) for f in frames for ns in f.own_ns]
            if len(samples) >= self.settings.min_samples and len(frames) > 1:
                spent_s = sum(samples) / 1e9
                judging_s = len(samples) * self.verifier.judge_s
                if (
                    len(samples) >= self.rig.device.most_samples
                    or time.monotonic() - start + judging_s > self.settings.max_time_s
                    or (spent_s >= self.settings.min_time_s and settled(samples))
                    or spent_s >= 3 * self.settings.min_time_s
                ):
                    return True
            if calls.kept_bytes > self.rig.device.kept_bytes:
                return False

    def empty(self, per_frame: int, n: int) -> Times:
        """An empty `solve` in frames of as many calls, staged and flushed alike: a core that rested wakes later."""
        known = self._empty.get((per_frame, n))
        if known is not None:
            return known
        with Bench(self.rig, self.rig.empty, self.rig.problem.timed) as bench:
            calls = Calls(bench, self.rig, [], 0)
            cold = self.settings.l2 == "cold"
            frames = [
                calls.run(per_frame, "empty call", cold=cold, led=True, together=True, keep=False)
                for _ in range(_EMPTY_FRAMES)
            ]
            rounds = self.rounds(calls, n)
        times = self._empty[per_frame, n] = Times(frames=tuple(frame_times(f) for f in frames), rounds=rounds)
        return times

    def forget_empty(self) -> None:
        """Time an empty `solve` anew when next it is asked for."""
        self._empty.clear()


Drawn = list[tuple[Draw, Mapping[str, torch.Tensor]]]


@dataclass(slots=True)
class Calls:
    """Runs frames of calls on new inputs, numbers them, and keeps what is to be judged."""

    bench: Bench
    rig: Rig
    records: list[Record]
    done: int
    kept_bytes: int = 0

    def draw(self, count: int) -> Drawn:
        """New inputs for `count` calls."""
        maker = self.rig.inputs(self.rig.problem.timed)
        draws = [Draw(self.rig.seed(), "declared") for _ in range(count)]
        return [(draw, maker.make(draw)) for draw in draws]

    def run(
        self, count: int, what: str, *, cold: bool, led: bool = False, together: bool = False, keep: bool = True
    ) -> Frame:
        """One frame on new inputs."""
        return self.run_drawn(self.draw(count), what, cold=cold, led=led, together=together, keep=keep)

    def run_drawn(
        self, drawn: Drawn, what: str, *, cold: bool, led: bool = False, together: bool = False, keep: bool = True
    ) -> Frame:
        """One frame on these inputs."""
        labels = [f"{what} {self.done + i + 1}" for i in range(len(drawn))]
        frame = self.bench.frame(drawn, labels, cold=cold, led=led, together=together)
        if keep:
            self.done += len(drawn)
            self.records.extend(frame.records)
            self.kept_bytes += sum(t.nbytes for r in frame.records for t in r.outputs.values())
        return frame


def _calls_for(target_ns: float, call_ns: float, most: int) -> int:
    """How many calls make `target_ns`, from 1 to `most`; a power of two, so that few empty frames serve all kernels."""
    wanted = math.ceil(target_ns / max(call_ns, 1.0))
    return max(1, min(1 << (wanted - 1).bit_length(), 1 << most.bit_length() >> 1))


def frame_times(frame: Frame) -> FrameTimes:
    """A frame's times, as the controller gets them."""
    return FrameTimes(
        own_ns=tuple(r.nanoseconds for r in frame.records),
        outside_ns=frame.outside_ns,
        waited_ns=frame.waited_ns,
        event_ns=tuple(r.event_ns for r in frame.records),
        conditions=frame.conditions,
    )
