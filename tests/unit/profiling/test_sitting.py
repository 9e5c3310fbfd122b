"""Kernels that sit together: a failure takes its own pairs along and no other, and each pair keeps its own blocks."""

from __future__ import annotations

import random
from typing import cast

import pytest

from profiling.harness.bench import Bench
from profiling.harness.interleaving import Sitting
from profiling.harness.verdict import comparison
from profiling.harness.wire import FrameTimes, Round, Times
from profiling.harness.worker import CandidateFailure
from profiling.types import Comparison

BASE, CHAMPION, WITHOUT, ALL_OFF = range(4)
PAIRS = ((BASE, CHAMPION), (WITHOUT, CHAMPION), (ALL_OFF, BASE))


class Worker:
    closed = False

    def close(self) -> None:
        self.closed = True


def frames(nanoseconds: int) -> tuple[FrameTimes, FrameTimes]:
    frame = FrameTimes(own_ns=(nanoseconds,), outside_ns=nanoseconds + 20_000)
    return frame, frame


def fail(sitting: Sitting, kernel: int) -> Worker:
    worker = Worker()
    with sitting.blaming(kernel, cast(Bench, worker)):
        raise CandidateFailure("crashed: SIGSEGV in timed call 3", "a line that it printed\n")
    return worker


def test_a_failed_kernel_takes_its_own_pairs_and_what_nothing_else_is_compared_with() -> None:
    sitting = Sitting(PAIRS)
    assert sitting.live() == [BASE, CHAMPION, WITHOUT, ALL_OFF]
    worker = fail(sitting, ALL_OFF)
    assert worker.closed
    assert sitting.live() == [BASE, CHAMPION, WITHOUT]
    failure = sitting.compared(PAIRS[2], None).failure
    assert failure == "a: crashed: SIGSEGV in timed call 3 (it printed: a line that it printed)"
    assert sitting.compared(PAIRS[0], None).failure is None


def test_without_the_champion_nothing_but_the_audit_goes_on() -> None:
    sitting = Sitting(PAIRS)
    fail(sitting, CHAMPION)
    assert sitting.live() == [BASE, ALL_OFF]
    assert [sitting.compared(pair, None).failure is None for pair in PAIRS] == [False, False, True]
    failure = sitting.compared(PAIRS[1], None).failure
    assert failure is not None
    assert failure.startswith("b: ")


def test_what_is_no_failure_of_the_kernel_is_not_blamed_on_it() -> None:
    sitting = Sitting(PAIRS)
    with pytest.raises(RuntimeError), sitting.blaming(BASE, cast(Bench, Worker())):
        raise RuntimeError("ours")
    assert sitting.failures == {}


def test_each_pair_has_its_own_gain_and_loses_only_blocks_that_lack_one_of_it() -> None:
    """The best kernel is twice as slow as the champion, and as fast as the champion without any method."""
    sitting = Sitting(PAIRS)
    sitting.batches = {
        k: (Round(n=4, own_n=400_000, outside_n=400_000, own_2n=800_000, outside_2n=800_000),) * 5 for k in range(4)
    }
    times = {BASE: 200_000, CHAMPION: 100_000, WITHOUT: 130_000, ALL_OFF: 200_000}
    for number in range(3):
        sitting.rounds.append([{kernel: frames(ns + step) for kernel, ns in times.items()} for step in range(6)])
        if number == 1:  # it failed in the middle of a block
            del sitting.rounds[-1][-1][WITHOUT]
    found = [sitting.compared(pair, None) for pair in PAIRS]
    assert [[len(blocks) for blocks in compared.pairs] for compared in found] == [[6, 6, 6], [6, 5, 6], [6, 6, 6]]
    assert all(r.own_n == 400_000 for compared in found for side in compared.rounds for r in side)
    ratios = []
    for pair in PAIRS:
        block = sitting._blocks(pair, sitting.rounds[0])[0]
        ratios.append(block.a[0].own_ns[0] / block.b[0].own_ns[0])
    assert ratios == [2.0, 1.3, 1.0]
    assert sitting.settled()


def test_a_noisy_pair_keeps_the_sitting_going() -> None:
    sitting = Sitting(PAIRS)
    rng = random.Random(7)
    blocks = [{kernel: frames(100_000) for kernel in range(4)} for _ in range(10)]
    for block in blocks:
        block[WITHOUT] = frames(100_000 + rng.randrange(60_000))
    sitting.rounds.append(blocks)
    assert not sitting.settled()
    fail(sitting, WITHOUT)
    assert sitting.settled()


def test_the_controller_reads_such_a_pair() -> None:
    sitting = Sitting(((0, 1),))
    own = [200_000, 100_000]
    sitting.batches = {
        k: (Round(n=4, own_n=4 * ns, outside_n=4 * ns, own_2n=8 * ns, outside_2n=8 * ns),) * 5
        for k, ns in enumerate(own)
    }
    sitting.rounds = [[{k: frames(ns + step) for k, ns in enumerate(own)} for step in range(6)] for _ in range(3)]
    empty = Times(
        frames=frames(1) * 5, rounds=(Round(n=4, own_n=0, outside_n=20_000, own_2n=0, outside_2n=20_000),) * 5
    )
    found = comparison(sitting.compared((0, 1), empty), random.Random(1))
    assert isinstance(found, Comparison), found
    assert found.speedup == pytest.approx(2.0, rel=0.01)
