"""Numbers behind every claim: a wrong interval is a false speedup."""

from __future__ import annotations

import random

from backends.types import Rejected
from profiling.findings import Comparison, Conditions
from profiling.harness import verdict
from profiling.harness.statistics import bootstrap_interval, interquartile_range, median, median_noise, settled
from profiling.harness.wire import Block, Compared, FrameTimes, Round, Times
from profiling.types import MeasureSettings


def test_quartiles_of_known_values() -> None:
    assert interquartile_range([1.0, 2.0, 3.0, 4.0, 5.0]) == 2.0
    assert interquartile_range([7.0]) == 0.0


def test_noise_falls_with_the_root_of_the_count() -> None:
    few = [1.0, 1.1] * 10
    assert abs(median_noise(few) / median_noise(few * 4) - 2.0) < 0.2


def test_sampling_goes_on_while_noise_is_high_and_falling() -> None:
    rng = random.Random(1)
    loud = [1.0 + rng.uniform(-0.5, 0.5) for _ in range(20)]
    quiet = [1.0 + rng.uniform(-0.001, 0.001) for _ in range(20)]
    assert settled(quiet)
    assert not settled([*([0.2, 1.8] * 5), *[1.0 + 0.01 * rng.random() for _ in range(10)]])
    assert median_noise(loud) > median_noise(quiet)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """An interval that is too narrow sells noise as a gain."""
    rng = random.Random(3)
    hits = 0
    for _ in range(60):
        groups = [[rng.gauss(0.0, 1.0) for _ in range(8)] for _ in range(3)]
        low, high = bootstrap_interval(groups, rng)
        hits += low <= 0.0 <= high
    assert hits >= 50


def test_the_interval_widens_when_workers_differ() -> None:
    """Blocks of one worker agree with each other even when the worker is odd; only other workers show that."""
    rng = random.Random(5)
    same = [[0.1, 0.11, 0.09]] * 3
    odd = [[0.1, 0.11, 0.09], [0.1, 0.11, 0.09], [0.4, 0.41, 0.39]]
    low, high = bootstrap_interval(same, rng)
    low_odd, high_odd = bootstrap_interval(odd, rng)
    assert high_odd - low_odd > high - low


def _frames(own: int, outside: int, count: int = 10) -> tuple[FrameTimes, ...]:
    return tuple(FrameTimes(own_ns=(own,), outside_ns=outside) for _ in range(count))


_EMPTY = Times(
    frames=_frames(50, 20_000), rounds=(Round(n=1, own_n=50, outside_n=20_000, own_2n=100, outside_2n=20_060),)
)


def _rounds(own: int, outside: int) -> tuple[Round, ...]:
    return (Round(n=1, own_n=own, outside_n=20_000 + outside, own_2n=2 * own, outside_2n=20_000 + 2 * outside),) * 3


def test_clocks_that_agree_raise_no_doubt() -> None:
    times = Times(frames=_frames(1_000_000, 1_025_000), rounds=_rounds(1_000_000, 1_003_000))
    assert verdict.doubts(times, _EMPTY) is None


def test_a_clock_that_shows_less_is_doubted_in_timed_and_in_batched_calls() -> None:
    in_frames = Times(frames=_frames(500_000, 1_025_000), rounds=_rounds(1_000_000, 1_003_000))
    in_rounds = Times(frames=_frames(1_000_000, 1_025_000), rounds=_rounds(500_000, 1_003_000))
    assert "clocks disagree" in (verdict.doubts(in_frames, _EMPTY) or "")
    assert "clocks disagree" in (verdict.doubts(in_rounds, _EMPTY) or "")


def test_rounds_may_differ_by_what_those_of_an_empty_solve_vary() -> None:
    """That is the machine's; but no more than a quarter of a call, which a kernel that lies would have small."""
    varied = (0, 15_000, 30_000, 15_000, 0, 30_000, 15_000)  # ns a call
    empty = Times(
        frames=_EMPTY.frames,
        rounds=tuple(Round(n=64, own_n=0, outside_n=20_000, own_2n=0, outside_2n=20_000 + 64 * ns) for ns in varied),
    )
    steady = Times(frames=_EMPTY.frames, rounds=empty.rounds[1:2] * 7)

    def times(own: int, hidden: int) -> Times:
        more = 64 * (15_000 + own + hidden)
        rounds = Round(n=64, own_n=64 * own, outside_n=20_000, own_2n=128 * own, outside_2n=20_000 + more)
        return Times(frames=_frames(own, own + 20_000), rounds=(rounds,) * 7)

    assert verdict.doubts(times(100_000, 25_000), empty) is None
    assert "one more call" in (verdict.doubts(times(100_000, 25_000), steady) or "")
    assert "one more call" in (verdict.doubts(times(100_000, 40_000), empty) or "")
    assert "one more call" in (verdict.doubts(times(20_000, 8_000), empty) or "")


def test_the_empty_solve_is_taken_off() -> None:
    times = Times(frames=_frames(1_000_050, 1_025_000), rounds=_rounds(1_000_050, 1_003_060))
    timing = verdict.timing_of(times, _EMPTY, MeasureSettings())
    assert median(timing.samples_ms) == timing.median_ms == 1.0
    assert timing.outside_ms == 1.003


def test_blocks_disturbed_by_another_process_are_left_out() -> None:
    """A neighbour that took the core in some blocks must not widen the interval or shift the gain."""

    def block(a: int, b: int, waited: int = 0) -> Block:
        first = FrameTimes(own_ns=(a,), outside_ns=a + 20_000, waited_ns=waited)
        second = FrameTimes(own_ns=(b,), outside_ns=b + 20_000, waited_ns=0)
        return Block(a=(first, first), b=(second, second))

    calm = [block(2_000_050, 1_000_050)] * 4
    pair = (*calm, block(9_000_050, 1_000_050, waited=7_000_000))
    found = verdict.comparison(Compared(pairs=(pair, pair, pair), empty=_EMPTY, failure=None), random.Random(1))
    assert isinstance(found, Comparison)
    assert abs(found.speedup - 2.0) < 1e-9
    assert abs(found.high - 2.0) < 1e-9
    assert abs(found.delta_ms - 1.0) < 1e-9


def test_an_empty_solve_that_something_disturbed_takes_nothing_off() -> None:
    """A kernel that another candidate left running would make later ones look faster by what it takes of the GPU."""

    def frame(ns: int, *, shared: bool) -> FrameTimes:
        conditions = Conditions(1980.0, 61, 512.5, held_back=False, shared=shared)
        return FrameTimes(own_ns=(ns,), outside_ns=ns + 20_000, conditions=conditions)

    times = Times(frames=(frame(1_000_050, shared=False),) * 10, rounds=())
    some = Times(frames=(frame(50, shared=False),) * 6 + (frame(900_000, shared=True),) * 5, rounds=())
    assert verdict.doubts(times, some) is None
    assert verdict.timing_of(times, some, MeasureSettings()).median_ms == 1.0
    most = Times(frames=(frame(50, shared=False),) * 5 + (frame(900_000, shared=True),) * 6, rounds=())
    assert "shared" in (verdict.doubts(times, most) or "")


def _on_gpu(ns: int, *, held_back: bool) -> tuple[FrameTimes, FrameTimes]:
    conditions = Conditions(1980.0, 61, 512.5, held_back)
    frame = FrameTimes(own_ns=(ns,), outside_ns=ns + 20_000, conditions=conditions)
    return frame, frame


def _blocks(cool: int, hot: int) -> Compared:
    """Two kernels of 2 and 1 ms, of which heat makes the second twice as slow."""
    calm = [Block(a=_on_gpu(2_000_050, held_back=False), b=_on_gpu(1_000_050, held_back=False))] * cool
    slow = [Block(a=_on_gpu(2_000_050, held_back=False), b=_on_gpu(2_000_050, held_back=True))] * hot
    return Compared(pairs=((*calm, *slow),) * 3, empty=_EMPTY, failure=None)


def test_blocks_in_which_heat_held_the_gpu_back_are_dropped_whole_and_counted() -> None:
    """A kernel must not win since the other one was measured while the chip was too hot."""
    found = verdict.comparison(_blocks(cool=8, hot=2), random.Random(1))
    assert isinstance(found, Comparison)
    assert (found.disturbed, round(found.low, 3), round(found.high, 3)) == (6, 2.0, 2.0)


def test_blocks_in_which_the_gpu_worked_for_somebody_else_are_dropped() -> None:
    """A kernel must not win by work that it leaves behind for the time of the other one."""
    alone, shared = (Conditions(1980.0, 61, 512.5, False, shared=x) for x in (False, True))
    frames = {
        (ns, c): (FrameTimes(own_ns=(ns,), outside_ns=ns + 20_000, conditions=c),) * 2
        for ns in (1_000_050, 1_500_050)
        for c in (alone, shared)
    }
    calm = Block(a=frames[1_000_050, alone], b=frames[1_000_050, alone])
    sabotaged = Block(a=frames[1_500_050, shared], b=frames[1_000_050, alone])
    found = verdict.comparison(
        Compared(pairs=((calm,) * 6 + (sabotaged,) * 4,) * 3, empty=_EMPTY, failure=None), random.Random(1)
    )
    assert isinstance(found, Comparison)
    assert (found.disturbed, round(found.high, 3)) == (12, 1.0)


def test_a_gpu_that_heat_holds_back_most_of_the_time_gives_no_comparison() -> None:
    found = verdict.comparison(_blocks(cool=2, hot=8), random.Random(1))
    assert isinstance(found, Rejected)
    assert (found.stage, found.reason) == (
        "time",
        "the GPU was held back by heat or its power brake, or shared, in 24 of 30 blocks",
    )


def test_samples_are_kept_with_the_gpus_conditions_and_without_those_that_heat_slowed() -> None:
    frames = (*_on_gpu(1_000_050, held_back=False), *_on_gpu(3_000_050, held_back=True))
    timing = verdict.timing_of(Times(frames=frames, rounds=()), _EMPTY, MeasureSettings())
    assert (timing.samples_ms, timing.disturbed) == ((1.0, 1.0), 2)
    assert timing.conditions == (Conditions(1980.0, 61, 512.5, False),) * 2


def _compared(shown: float, waited: int = 0) -> Compared:
    """Two kernels of 2 ms; the second one's clock shows `shown` of its time. Both clocks err by up to 0.5%."""
    rng = random.Random(11)

    def half(share: float) -> tuple[FrameTimes, FrameTimes]:
        first, second = (
            FrameTimes(
                own_ns=(int(ns * share * rng.uniform(0.995, 1.005)),),
                outside_ns=int(ns * rng.uniform(0.995, 1.005)) + 20_000,
                waited_ns=waited,
            )
            for ns in (2_000_000, 2_000_000)
        )
        return first, second

    pairs = tuple(tuple(Block(a=half(1.0), b=half(shown)) for _ in range(10)) for _ in range(3))
    return Compared(pairs=pairs, empty=_EMPTY, failure=None)


def test_a_gain_that_only_the_workers_clock_shows_is_none() -> None:
    """A clock slowed by less than a measurement alone can tell would be worth a few percent a night."""
    honest = verdict.comparison(_compared(1.0), random.Random(1))
    assert isinstance(honest, Comparison)
    assert honest.low <= 1.0 <= honest.high
    far = verdict.comparison(_compared(0.93), random.Random(1))
    assert isinstance(far, Rejected)
    assert far.stage == "time"
    assert far.reason.startswith("b: clocks disagree: b is 1 times as fast as a by the outside clock, 1.0")
    for doubtful in (_compared(0.985), _compared(0.93, waited=1_000_000)):  # too near to tell; too busy to tell
        found = verdict.comparison(doubtful, random.Random(1))
        assert isinstance(found, Comparison)
        assert found.speedup > 1.01
        assert found.low <= 1.001
        assert found.delta_low_ms <= 0.002
