"""Kernels interleaved, so that what drifts meets all of them. Raw nanoseconds: the controller judges them."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from profiling.harness.arena import Layout, out_of_memory, torch_dtype
from profiling.harness.bench import Bench, Record, plan_slots
from profiling.harness.inputs import Draw
from profiling.harness.timing import Calls, Timer, frame_times
from profiling.harness.verify import described
from profiling.harness.wire import Block, Compared, FrameTimes, Round, Times
from profiling.harness.worker import CandidateFailure
from profiling.types import TaskError

_BLOCK_NS = 1_000_000
_MIN_BLOCKS = 5
_FEW_BLOCKS, _SETTLED_ERROR = 6, 0.002
_SHORT_NS = 50_000  # on a GPU, where one call varies by a microsecond or two: shorter ones are timed in batches too
_BATCH_BLOCKS = 4

Workers = dict[int, Bench]
"""By kernel."""
Kept = dict[int, list[Record]]
"""Calls to be judged, by kernel."""


@dataclass(slots=True)
class Interleaver:
    """Compares kernels on the timed case, with a timer's parts and settings."""

    timer: Timer

    def compare(
        self, kernels: Sequence[Path], pairs: Sequence[tuple[int, int]], rng: random.Random
    ) -> tuple[Compared, ...]:
        """Interleave kernels over fresh sets of workers, one worker for each kernel.

        Args:
            kernels: at least two.
            pairs: which two are compared, a and b, by their places in `kernels`.
            rng: the order in which they take turns.

        Returns:
            What each pair rests on. A kernel that fails takes its own pairs with it, and no other.
        """
        if self._fit(len(kernels)):
            try:
                return self._sit(kernels, pairs, rng)
            except (RuntimeError, MemoryError, TaskError) as error:
                if not out_of_memory(error) or len(kernels) == 2:
                    raise
        return tuple(self._sit((kernels[a], kernels[b]), [(0, 1)], rng)[0] for a, b in pairs)

    def _fit(self, kernels: int) -> bool:
        """Whether so many kernels can sit together: their arenas, and outputs that wait to be judged."""
        rig = self.timer.rig
        if not rig.device.one_by_one:
            # Workers start in no time there, and each wakes the slower the longer others had its core: beside three
            # long kernels the outside clock showed 3 to 9% more of a short one.
            return kernels == 2
        outputs = [t for t in rig.problem.timed.tensors if t.role != "in"]
        call_bytes = sum(t.elements * torch_dtype(t.dtype).itemsize for t in outputs)
        layout = Layout.of(rig.problem.timed, rig.device.align, rig.device.gap)
        # What is staged is kept a second time, to be compared.
        arenas = 2 * kernels * plan_slots(layout, rig.device) * layout.slot_bytes
        return kernels == 2 or (
            2 * _MIN_BLOCKS * kernels * call_bytes <= rig.device.kept_bytes and 2 * arenas <= rig.device.available()
        )

    def _sit(
        self, kernels: Sequence[Path], pairs: Sequence[tuple[int, int]], rng: random.Random
    ) -> tuple[Compared, ...]:
        sitting = Sitting(pairs)
        started: list[Workers] = []
        try:
            for number in range(self.timer.settings.pairs):
                if not started:
                    live = {kernel: kernels[kernel] for kernel in sitting.live()}
                    started = self._start(live, self.timer.settings.pairs - number)
                    for workers in started:
                        for kernel in sitting.live():
                            with sitting.blaming(kernel, workers[kernel]):
                                workers[kernel].ready()  # before anything is timed
                kept = self._round(started.pop(), sitting, rng, first=number == 0)
                self._judge(kept, sitting)
                if not sitting.live():
                    break
        finally:
            _close(started)
        n = max((r.n for rounds in sitting.slopes.values() for r in rounds), default=1)
        empty = self.timer.empty(sitting.per_frame, n) if sitting.live() else None
        batched = self.timer.empty(sitting.batch or 1, n) if any(sitting.batched) and sitting.live() else None
        return tuple(sitting.compared(pair, empty, batched) for pair in pairs)

    def _start(self, kernels: Mapping[int, Path], wanted: int) -> list[Workers]:
        """Sets of workers that start side by side: on a GPU that takes longest, and they wait there without a core."""
        case = self.timer.rig.problem.timed
        sets: list[Workers] = []
        try:
            while not sets or (len(sets) < wanted and self.timer.rig.device.has_room_for_more):
                sets.append({})
                for number, artifact in kernels.items():
                    sets[-1][number] = Bench(self.timer.rig, artifact, case)
        except BaseException:
            _close(sets)
            raise
        return sets

    def _round(self, workers: Workers, sitting: Sitting, rng: random.Random, *, first: bool) -> Kept:
        """What one set of workers has to say: blocks and, where frames are too short for the outside clock, rounds."""
        start = time.monotonic()
        kept: Kept = {kernel: [] for kernel in workers}
        entered = ExitStack()
        entered.callback(_close, [workers])
        with entered:
            sides: dict[int, Calls] = {}
            call_ns = {}
            for kernel in sitting.live():
                # Once more for what shows as its worker is left, such as hoarding.
                entered.enter_context(sitting.blaming(kernel, workers[kernel]))
                with sitting.blaming(kernel, workers[kernel]):
                    bench = entered.enter_context(workers[kernel])
                    sides[kernel] = Calls(bench, self.timer.rig, kept[kernel], 0)
            sharing = len(sitting.live()) if self.timer.rig.device.one_by_one else 1
            for kernel in sitting.live():
                with sitting.blaming(kernel, workers[kernel]):
                    call_ns[kernel] = self.timer.warm_up(sides[kernel], sharing)
            if not sitting.live():
                return kept
            slots = min(workers[kernel].slots for kernel in sitting.live())
            fastest = min(call_ns[kernel] for kernel in sitting.live())
            sitting.per_frame = self.timer.per_frame(_BLOCK_NS, fastest, slots)
            sitting.rounds.append([])
            sitting.batched.append([])
            self._short(sides, sitting, rng, slots, start)
            while sitting.live() and not self._enough(sitting, start, sides):
                sitting.rounds[-1].append(self._block(sides, sitting, rng, sitting.per_frame))
            if self.timer.rig.device.one_by_one and first:
                timed = [f for block in sitting.rounds[-1] for halves in block.values() for f in halves]
                for kernel in sitting.live():
                    with sitting.blaming(kernel, workers[kernel]):
                        sitting.slopes[kernel] = self.timer.rounds_for(timed, sides[kernel], slots)
            for bench in workers.values():
                bench.doom()
        return kept

    def _short(
        self, sides: Mapping[int, Calls], sitting: Sitting, rng: random.Random, slots: int, start: float
    ) -> None:
        """Blocks of batches, where the fastest kernel is a short one on a GPU: as many calls in each set of workers."""
        if not self.timer.rig.device.one_by_one:
            return
        if sitting.batch is None:
            block = self._block(sides, sitting, rng, sitting.per_frame)
            sitting.rounds[-1].append(block)
            fastest = min((min(f.own_ns) for halves in block.values() for f in halves), default=_SHORT_NS)
            sitting.batch = self.timer.batch_of(fastest, slots) if fastest < _SHORT_NS else 1
        most_s = self.timer.settings.max_time_s / self.timer.settings.pairs / 2
        while 1 < sitting.batch <= slots and sitting.live() and len(sitting.batched[-1]) < _BATCH_BLOCKS:
            too_much = 2 * sum(s.kept_bytes for s in sides.values()) > self.timer.rig.device.kept_bytes
            if too_much or time.monotonic() - start > most_s:
                return
            sitting.batched[-1].append(self._block(sides, sitting, rng, sitting.batch))

    def _block(
        self, sides: Mapping[int, Calls], sitting: Sitting, rng: random.Random, calls: int
    ) -> dict[int, tuple[FrameTimes, FrameTimes]]:
        """Each kernel twice, in a random order and back, equal inputs for all each time; their frames of `calls`."""
        cold = self.timer.settings.l2 == "cold"
        order = sitting.live()
        rng.shuffle(order)
        times: dict[int, list[FrameTimes]] = {kernel: [] for kernel in order}
        for turn in (order, order[::-1]):
            drawn = sides[turn[0]].draw(calls)
            for kernel in turn:
                if kernel not in sitting.failures:
                    with sitting.blaming(kernel, sides[kernel].bench):
                        frame = sides[kernel].run_drawn(drawn, "timed call", cold=cold, led=True, together=True)
                        times[kernel].append(frame_times(frame))
        return {kernel: (t[0], t[1]) for kernel, t in times.items() if len(t) == 2}

    def _enough(self, sitting: Sitting, start: float, sides: Mapping[int, Calls]) -> bool:
        """Whether a set of workers has run its share."""
        blocks, live = sitting.rounds[-1], sitting.live()
        if sum(s.kept_bytes for s in sides.values()) > self.timer.rig.device.kept_bytes and blocks:
            return True
        if len(blocks) < _MIN_BLOCKS:
            return False
        if self.timer.rig.device.one_by_one and len(blocks) >= _FEW_BLOCKS and sitting.settled():
            return True
        share = 1.0 / self.timer.settings.pairs
        spent_s = [sum(sum(f.own_ns) for x in blocks for f in x[kernel]) / 1e9 for kernel in live]
        judging_s = len(live) * sitting.per_frame * len(blocks) * self.timer.verifier.judge_s
        most_s = share * self.timer.settings.max_time_s * len(live) / 2
        most_blocks = self.timer.rig.device.most_blocks // (1 if len(live) == 2 else 2)  # one noisy pair keeps all
        return (
            len(blocks) >= most_blocks
            or min(spent_s) >= share * self.timer.settings.min_time_s
            or time.monotonic() - start + judging_s > most_s
        )

    def _judge(self, kept: Kept, sitting: Sitting) -> None:
        """Every call of every kernel, up to its first wrong one. Equal inputs need the reference only once."""
        if self.timer.rig.tolerance is None:
            return
        case = self.timer.rig.problem.timed
        by_draw: dict[Draw, list[tuple[int, Record]]] = {}
        for kernel, records in kept.items():
            for record in records:
                by_draw.setdefault(record.draw, []).append((kernel, record))
        for draw, calls in by_draw.items():
            expected = self.timer.verifier.expected(case, draw)
            for kernel, record in calls:
                if kernel not in sitting.failures:
                    reason = self.timer.verifier.judgement(case, record, expected).reason
                    if reason is not None:
                        sitting.failures[kernel] = f"{record.where}: {reason}"


@dataclass(slots=True)
class Sitting:
    """Kernels that take turns, and what came of it.

    Attributes:
        pairs: which kernels are compared.
        failures: why a kernel is out.
        rounds: by set of workers and block, both frames of each kernel.
        slopes: rounds of each kernel for the outside clock.
        per_frame: calls of one frame.
        batched: as `rounds`, each frame a batch of `batch` calls; empty where calls are not short.
        batch: None until a call's time is known; 1 where it is not short.
    """

    pairs: Sequence[tuple[int, int]]
    failures: dict[int, str] = field(default_factory=dict)
    rounds: list[list[dict[int, tuple[FrameTimes, FrameTimes]]]] = field(default_factory=list)
    slopes: dict[int, tuple[Round, ...]] = field(default_factory=dict)
    per_frame: int = 1
    batched: list[list[dict[int, tuple[FrameTimes, FrameTimes]]]] = field(default_factory=list)
    batch: int | None = None

    def live(self) -> list[int]:
        """The kernels that something can still be said of: neither they nor what they are compared with has failed."""
        return sorted({kernel for pair in self.pairs if self._holds(pair) for kernel in pair})

    @contextmanager
    def blaming(self, kernel: int, worker: Bench) -> Iterator[None]:
        """What fails here is the kernel's failure. Its worker is ended: one that hangs would run beside the others."""
        try:
            yield
        except CandidateFailure as error:
            self.failures.setdefault(kernel, described(error))
            worker.close()

    def settled(self) -> bool:
        """Whether more blocks of this set of workers would say little of any pair: a GPU is quiet."""
        return all(_settled(self._blocks(pair, self.rounds[-1])) for pair in self.pairs if self._holds(pair))

    def compared(self, pair: tuple[int, int], empty: Times | None, batched_empty: Times | None = None) -> Compared:
        """What was found of a pair."""
        for name, kernel in zip("ab", pair, strict=True):
            if kernel in self.failures:
                return Compared(pairs=(), empty=None, failure=f"{name}: {self.failures[kernel]}")
        a, b = (self.slopes.get(kernel, ()) for kernel in pair)
        pairs, batched = (
            tuple(blocks for found in rounds if (blocks := tuple(self._blocks(pair, found))))
            for rounds in (self.rounds, self.batched)
        )
        return Compared(
            pairs=pairs,
            rounds=(a, b),
            batched=batched if len(batched) == len(pairs) else (),  # of some workers alone it would say less
            batched_empty=batched_empty,
            empty=empty,
            failure=None,
        )

    def _holds(self, pair: tuple[int, int]) -> bool:
        return not self.failures.keys() & set(pair)

    @staticmethod
    def _blocks(pair: tuple[int, int], found: Sequence[Mapping[int, tuple[FrameTimes, FrameTimes]]]) -> list[Block]:
        a, b = pair
        return [Block(a=x[a], b=x[b]) for x in found if a in x and b in x]


def _close(sets: Sequence[Workers]) -> None:
    """End workers, all at once, that may not have been waited for yet."""
    benches = [bench for workers in sets for bench in workers.values()]
    for bench in benches:
        bench.doom()
    for bench in benches:
        bench.close()


def _settled(blocks: Sequence[Block]) -> bool:
    """Whether the standard error of a pair's mean log-ratio is so small that more blocks say little."""
    ratios = [math.log(_mean_ns(x.a) / _mean_ns(x.b)) for x in blocks]
    return statistics.stdev(ratios) / math.sqrt(len(ratios)) <= _SETTLED_ERROR


def _mean_ns(frames: Sequence[FrameTimes]) -> float:
    calls = [ns for f in frames for ns in f.own_ns]
    return max(1.0, sum(calls) / len(calls))
