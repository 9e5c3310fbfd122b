"""Samples of one kernel by both clocks, and of two kernels interleaved. Raw nanoseconds: the controller judges them."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import torch

from profiling.harness.bench import Bench, Frame, Record, Rig
from profiling.harness.inputs import Draw
from profiling.harness.statistics import settled
from profiling.harness.verify import Verifier, described
from profiling.harness.wire import Block, Compared, FrameTimes, Round, Times
from profiling.harness.worker import CandidateFailure
from profiling.types import CaseCheck, MeasureSettings

_FRAME_NS = 400_000  # calls are put together until a frame is well above what waking a worker costs
_BLOCK_NS = 1_000_000
_ROUND_NS = 500_000
_ROUNDS = 5
_ROUND_CALLS = 64
_EMPTY_FRAMES = 15
_WARM_WALL = 4.0  # a warm-up of `warmup_ms` takes at most this many times as long by the wall clock
_MIN_BLOCKS = 5
_FEW_BLOCKS, _SETTLED_ERROR = 10, 0.002


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
        """Warm up, take the outside clock's rounds, then sample until it is enough.

        Args:
            artifact: the kernel.
            started: its worker, where there is one already; it is ended.

        Returns:
            The kernel's times, those of an empty `solve` in frames of as many calls, and the check of every call. On a
            failure the times are None.
        """
        frames: list[FrameTimes] = []
        rounds: tuple[Round, ...] = ()
        per_frame = 1
        start = time.monotonic()
        while True:
            records: list[Record] = []
            try:
                worker, started = started or self.start(artifact), None
                with worker as bench:
                    calls = _Calls(bench, self.rig, records, sum(len(f.own_ns) for f in frames))
                    call_ns = self._warm_up(calls)
                    if not frames:
                        per_frame = self._per_frame(_FRAME_NS, call_ns, bench.slots)
                        rounds = self._rounds(calls, self._round_calls(call_ns, bench.slots))
                    done = self._sample(calls, per_frame, frames, start)
            except CandidateFailure as error:
                case = self.rig.problem.timed
                return None, None, CaseCheck(case.dims, "timed", False, described(error), None, None)
            check = self.verifier.judge_timed(records)
            if not check.passed:
                return None, None, check
            if done:
                empty = self.empty(per_frame, rounds[0].n if rounds else 1)
                return Times(frames=tuple(frames), rounds=rounds), empty, check

    def _warm_up(self, calls: _Calls) -> float:
        """Nanoseconds of one call, after `warmup_ms` of calls whose inputs are never timed.

        Inputs are used again here, so a kernel that remembers them looks endlessly fast: the wall clock ends that.
        """
        end = time.monotonic() + _WARM_WALL * self.settings.warmup_ms / 1e3
        frame = calls.run(1, "warm-up call", cold=False, keep=False)
        spent = frame.own_ns
        call_ns = float(spent)
        count = _calls_for(_FRAME_NS, call_ns, calls.bench.slots)
        if count > 1:
            calls.run(count, "warm-up call", cold=False, keep=False)
        while spent < self.settings.warmup_ms * 1e6 and time.monotonic() < end:
            own, _ = calls.bench.rerun(count, "warm-up calls")
            spent += own
            call_ns = own / count
        return call_ns

    def _per_frame(self, target_ns: float, call_ns: float, slots: int) -> int:
        """Calls of one timed frame: of one where the caches must be flushed for each call."""
        return 1 if self.rig.device.one_by_one else _calls_for(target_ns, call_ns, slots)

    def _rounds(self, calls: _Calls, n: int) -> tuple[Round, ...]:
        """Unflushed frames of n and 2n calls; none where two calls do not fit."""
        if calls.bench.slots < 2:
            return ()
        rounds = []
        for _ in range(_ROUNDS):
            one = calls.run(n, "batched call", cold=False)
            two = calls.run(2 * n, "batched call", cold=False)
            rounds.append(
                Round(n=n, own_n=one.own_ns, outside_n=one.outside_ns, own_2n=two.own_ns, outside_2n=two.outside_ns)
            )
        return tuple(rounds)

    @staticmethod
    def _round_calls(call_ns: float, slots: int) -> int:
        return _calls_for(_ROUND_NS, call_ns, min(_ROUND_CALLS, slots // 2))

    def _sample(self, calls: _Calls, per_frame: int, frames: list[FrameTimes], start: float) -> bool:
        """Sample into `frames`; False when what we keep grew too big, and another worker has to go on."""
        while True:
            frames.append(_times(calls.run(per_frame, "timed call", cold=self.settings.l2 == "cold", led=True)))
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
            calls = _Calls(bench, self.rig, [], 0)
            cold = self.settings.l2 == "cold"
            frames = [calls.run(per_frame, "empty call", cold=cold, led=True, keep=False) for _ in range(_EMPTY_FRAMES)]
            rounds = self._rounds(calls, n)
        times = self._empty[per_frame, n] = Times(frames=tuple(_times(f) for f in frames), rounds=rounds)
        return times

    def compare(self, a: Path, b: Path, rng: random.Random) -> Compared:
        """Interleave two kernels over fresh pairs of workers."""
        pairs: list[tuple[Block, ...]] = []
        rounds: Rounds = ((), ())
        per_frame = 1
        started: list[Pair] = []
        try:
            for number in range(self.settings.pairs):
                kept: tuple[list[Record], list[Record]] = ([], [])
                at = _Turn()
                try:
                    if not started:
                        started = self._start_pairs(a, b, self.settings.pairs - number)
                        for name, bench in [x for pair in started for x in zip("ab", pair, strict=True)]:
                            at.name = name
                            bench.ready()  # before anything is timed
                    per_frame, blocks, batches = self._pair(started.pop(), kept, rng, at, batched=number == 0)
                except CandidateFailure as error:
                    return Compared(pairs=(), empty=None, failure=f"{at.name}: {described(error)}")
                failure = self._judge_pair(kept)
                if failure:
                    return Compared(pairs=(), empty=None, failure=failure)
                pairs.append(tuple(blocks))
                rounds = batches or rounds
        finally:
            _close(started)
        n = max((r.n for side in rounds for r in side), default=1)
        return Compared(pairs=tuple(pairs), rounds=rounds, empty=self.empty(per_frame, n), failure=None)

    def _start_pairs(self, a: Path, b: Path, wanted: int) -> list[Pair]:
        """Pairs of workers that start side by side: on a GPU that takes longest, and they wait there without a core."""
        case = self.rig.problem.timed
        pairs: list[Pair] = []
        try:
            while not pairs or (len(pairs) < wanted and self.rig.device.has_room_for_more):
                first = Bench(self.rig, a, case)
                pairs.append((first, first))
                pairs[-1] = (first, Bench(self.rig, b, case))
        except BaseException:
            _close(pairs)
            raise
        return pairs

    def _pair(
        self, pair: Pair, kept: tuple[list[Record], list[Record]], rng: random.Random, at: _Turn, *, batched: bool
    ) -> tuple[int, list[Block], Rounds | None]:
        """One pair of workers: calls a frame, blocks and, where frames are too short for the outside clock, batches."""
        start = time.monotonic()
        blocks: list[Block] = []
        rounds = None
        entered = ExitStack()
        entered.callback(_close, [pair])
        with entered:
            benches = []
            for name, bench in zip("ab", pair, strict=True):
                at.name = name
                benches.append(entered.enter_context(bench))
            sides = (_Calls(benches[0], self.rig, kept[0], 0), _Calls(benches[1], self.rig, kept[1], 0))
            call_ns = []
            for name, side in zip("ab", sides, strict=True):
                at.name = name
                call_ns.append(self._warm_up(side))
            slots = min(bench.slots for bench in benches)
            per_frame = self._per_frame(_BLOCK_NS, min(call_ns), slots)
            if self.rig.device.one_by_one and batched:
                n = self._round_calls(min(call_ns), slots)
                rounds = (self._batches(sides, 0, n, at), self._batches(sides, 1, n, at))
            while not self._enough(blocks, start, per_frame, sides):
                blocks.append(self._block(sides, per_frame, rng, at))
            for bench in benches:
                bench.doom()
        return per_frame, blocks, rounds

    def _batches(self, sides: tuple[_Calls, _Calls], side: int, n: int, at: _Turn) -> tuple[Round, ...]:
        at.name = "ab"[side]
        return self._rounds(sides[side], n)

    def _block(self, sides: tuple[_Calls, _Calls], per_frame: int, rng: random.Random, at: _Turn) -> Block:
        first = rng.randrange(2)
        cold = self.settings.l2 == "cold"
        times: tuple[list[FrameTimes], list[FrameTimes]] = ([], [])
        for order in ((first, 1 - first), (1 - first, first)):
            drawn = sides[0].draw(per_frame)
            for side in order:
                at.name = "ab"[side]
                times[side].append(_times(sides[side].run_drawn(drawn, "timed call", cold=cold, led=True)))
        return Block(a=(times[0][0], times[0][1]), b=(times[1][0], times[1][1]))

    def _enough(self, blocks: list[Block], start: float, per_frame: int, sides: tuple[_Calls, _Calls]) -> bool:
        """Whether a pair of workers has run its share."""
        if sum(s.kept_bytes for s in sides) > self.rig.device.kept_bytes and blocks:
            return True
        if len(blocks) < _MIN_BLOCKS:
            return False
        if self.rig.device.one_by_one and len(blocks) >= _FEW_BLOCKS and _settled(blocks):
            return True
        share = 1.0 / self.settings.pairs
        spent_s = [sum(sum(f.own_ns) for x in blocks for f in getattr(x, side)) / 1e9 for side in ("a", "b")]
        judging_s = 2 * per_frame * len(blocks) * self.verifier.judge_s
        return (
            len(blocks) >= self.rig.device.most_blocks
            or min(spent_s) >= share * self.settings.min_time_s
            or time.monotonic() - start + judging_s > share * self.settings.max_time_s
        )

    def _judge_pair(self, kept: tuple[list[Record], list[Record]]) -> str | None:
        """The first wrong call of the two kernels. Equal inputs need the reference only once."""
        if self.rig.tolerance is None:
            return None
        case = self.rig.problem.timed
        by_draw: dict[Draw, list[tuple[str, Record]]] = {}
        for name, records in zip("ab", kept, strict=True):
            for record in records:
                by_draw.setdefault(record.draw, []).append((name, record))
        for draw, calls in by_draw.items():
            expected = self.verifier.expected(case, draw)
            for name, record in calls:
                reason = self.verifier.judgement(case, record, expected).reason
                if reason is not None:
                    return f"{name}: {record.where}: {reason}"
        return None


Pair = tuple[Bench, Bench]
Rounds = tuple[tuple[Round, ...], tuple[Round, ...]]


def _close(pairs: Sequence[Pair]) -> None:
    """End workers, all at once, that may not have been waited for yet."""
    benches = [bench for pair in pairs for bench in dict.fromkeys(pair)]
    for bench in benches:
        bench.doom()
    for bench in benches:
        bench.close()


def _settled(blocks: Sequence[Block]) -> bool:
    """Whether the standard error of a pair's mean log-ratio is so small that more blocks say little: a GPU is quiet."""
    ratios = [math.log(_mean_ns(x.a) / _mean_ns(x.b)) for x in blocks]
    return statistics.stdev(ratios) / math.sqrt(len(ratios)) <= _SETTLED_ERROR


def _mean_ns(frames: Sequence[FrameTimes]) -> float:
    calls = [ns for f in frames for ns in f.own_ns]
    return max(1.0, sum(calls) / len(calls))


@dataclass(slots=True)
class _Turn:
    """Whose turn it is: whom a failure belongs to."""

    name: str = ""


Drawn = list[tuple[Draw, Mapping[str, torch.Tensor]]]


@dataclass(slots=True)
class _Calls:
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

    def run(self, count: int, what: str, *, cold: bool, led: bool = False, keep: bool = True) -> Frame:
        """One frame on new inputs."""
        return self.run_drawn(self.draw(count), what, cold=cold, led=led, keep=keep)

    def run_drawn(self, drawn: Drawn, what: str, *, cold: bool, led: bool = False, keep: bool = True) -> Frame:
        """One frame on these inputs."""
        labels = [f"{what} {self.done + i + 1}" for i in range(len(drawn))]
        frame = self.bench.frame(drawn, labels, cold=cold, led=led)
        if keep:
            self.done += len(drawn)
            self.records.extend(frame.records)
            self.kept_bytes += sum(t.nbytes for r in frame.records for t in r.outputs.values())
        return frame


def _calls_for(target_ns: float, call_ns: float, most: int) -> int:
    """How many calls make `target_ns`, from 1 to `most`; a power of two, so that few empty frames serve all kernels."""
    wanted = math.ceil(target_ns / max(call_ns, 1.0))
    return max(1, min(1 << (wanted - 1).bit_length(), 1 << most.bit_length() >> 1))


def _times(frame: Frame) -> FrameTimes:
    return FrameTimes(
        own_ns=tuple(r.nanoseconds for r in frame.records),
        outside_ns=frame.outside_ns,
        waited_ns=frame.waited_ns,
        event_ns=tuple(r.event_ns for r in frame.records),
    )
