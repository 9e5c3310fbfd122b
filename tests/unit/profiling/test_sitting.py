"""Kernels that sit together: a failure takes its own pairs along and no other, and each pair keeps its own blocks."""

from __future__ import annotations

import random
from typing import cast

import pytest

from profiling.findings import Comparison, Conditions
from profiling.harness.bench import Bench
from profiling.harness.interleaving import Sitting
from profiling.harness.verdict import comparison
from profiling.harness.wire import Compared, FrameTimes, Round, Times
from profiling.harness.worker import CandidateFailure

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
    sitting.slopes = {
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
    sitting.slopes = {
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


def batch(ns: int) -> FrameTimes:
    return FrameTimes(own_ns=(ns,) * 16, outside_ns=16 * ns + 20_000)


def slopes(ns: int) -> tuple[Round, ...]:
    return (Round(n=4, own_n=4 * ns, outside_n=4 * ns, own_2n=8 * ns, outside_2n=8 * ns),) * 5


def short(batch_b: int, b: int = 7_000) -> Compared:
    """Kernels of 8 us and `b` ns, single calls of which vary by a microsecond; b's batches take `batch_b` a call."""
    rng = random.Random(3)
    sitting = Sitting(((0, 1),))
    own = [8_000, b]
    sitting.slopes = {k: slopes(ns) for k, ns in enumerate(own)}
    for _ in range(3):
        single = [{k: frames(ns + rng.randrange(-900, 900)) for k, ns in enumerate(own)} for _ in range(12)]
        sitting.rounds.append(single)
        together = [{k: (batch(ns + step),) * 2 for k, ns in enumerate((8_000, batch_b))} for step in range(4)]
        sitting.batched.append(together)
    empty = Times(frames=frames(1) * 5, rounds=slopes(0))
    batched = Times(frames=(batch(1),) * 5, rounds=slopes(0))
    return sitting.compared((0, 1), empty, batched)


def test_batches_sharpen_what_single_calls_of_a_short_kernel_show() -> None:
    found = comparison(short(7_000), random.Random(1))
    assert isinstance(found, Comparison), found
    assert found.batch == 16
    assert found.speedup == pytest.approx(8 / 7, rel=0.001)
    assert found.low < 8 / 7 < found.high
    assert found.high - found.low < 0.02
    assert found.delta_ms == pytest.approx(0.001, rel=0.3)
    alone = comparison(short(7_000).model_copy(update={"batched": ()}), random.Random(1))
    assert isinstance(alone, Comparison), alone
    assert alone.batch == 1
    assert alone.high - alone.low > 0.05


def test_a_kernel_whose_calls_help_each_other_in_a_batch_gains_nothing_by_it() -> None:
    """In a batch its first call does the work of sixteen, say: one call alone is as long as it ever was."""
    found = comparison(short(1_500), random.Random(1))
    assert isinstance(found, Comparison), found
    assert found.batch == 1
    assert found.speedup == pytest.approx(8 / 7, rel=0.05)
    alone = comparison(short(1_500).model_copy(update={"batched": ()}), random.Random(1))
    assert isinstance(alone, Comparison), alone
    assert found.low < alone.low < alone.high < found.high  # the noise of batches, which is less, is no measure of it


def test_batches_whose_empty_ones_were_disturbed_are_not_used() -> None:
    found = short(7_000)
    assert found.batched_empty is not None
    shared = Conditions(1980.0, 61, 512.5, held_back=False, shared=True)
    frames_of_empty = tuple(f.model_copy(update={"conditions": shared}) for f in found.batched_empty.frames)
    disturbed = found.batched_empty.model_copy(update={"frames": frames_of_empty})
    compared = comparison(found.model_copy(update={"batched_empty": disturbed}), random.Random(1))
    assert isinstance(compared, Comparison), compared
    assert compared.batch == 1


def test_single_calls_that_look_faster_than_batches_bear_out_gain_nothing() -> None:
    """A clock that is forged for calls that come alone, say."""
    found = comparison(short(8_000, b=4_000), random.Random(1))
    assert isinstance(found, Comparison), found
    assert found.low < 1.01
    assert found.high > 2


@pytest.mark.parametrize("batch_b", [7_400, 7_600, 7_750, 7_800])
def test_a_little_help_between_calls_that_single_calls_cannot_rule_out_is_no_gain_either(batch_b: int) -> None:
    """One call in sixteen beside the next, say: batches are some percent shorter, and single calls as long as ever."""
    found = comparison(short(batch_b, b=8_000), random.Random(1))
    assert isinstance(found, Comparison), found
    assert found.low < 1.02


def test_batches_that_not_all_workers_made_are_not_used() -> None:
    sitting = Sitting(((0, 1),))
    sitting.rounds = [[{0: frames(8_000), 1: frames(7_000)}] * 5] * 3
    sitting.batched = [[{0: frames(8_000), 1: frames(7_000)}], [], []]
    assert sitting.compared((0, 1), None).batched == ()
