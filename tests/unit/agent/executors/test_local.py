"""What a user loses when a machine's GPUs are used together: times of two devices compared, or a GPU lost with the run.

A second harness on the host stands for the second GPU: what is tested is who evaluates what, and what becomes of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.executors.local import LocalExecutor
from agent.executors.types import BuildTask, EvaluateTask, Trouble
from agent.task import build_candidate, limits, measure_settings, open_harness
from backends.types import Built, Rejected
from profiling.gpu_device import GpuFacts
from profiling.harness.harness import Harness
from profiling.types import HarnessFault
from tests.loop.scenario import BROKEN, WRONG, kernel
from tests.unit.agent.executors.bench import Bench

pytestmark = pytest.mark.timed
GPU = GpuFacts(index=1, uuid="GPU-bbbb", name="a stand-in", arch="sm_90")


@dataclass(slots=True)
class Lab:
    """A bench with its harness, and those that stood for other GPUs."""

    bench: Bench
    home: Harness
    opened: list[Harness] = field(default_factory=list)

    def open(self, gpu: GpuFacts) -> Harness:
        self.opened.append(open_harness(self.bench.task, self.bench.machine, self.bench.folder / "cache"))
        return self.opened[-1]

    def build(self, task: BuildTask) -> Built | Rejected:
        return build_candidate(self.bench.task, task.source, task.spec, self.bench.folder / "home" / "builds")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    bench = Bench.make(tmp_path_factory.mktemp("task"))
    with open_harness(bench.task, bench.machine, bench.folder / "cache") as home:
        home.check_task(bench.baseline.artifact)
        yield Lab(bench, home)


class Ahead(Harness):
    """The host's, as if its workers had something to open ahead."""

    def __init__(self, lab: Lab) -> None:
        task = lab.bench.task
        super().__init__(
            task.problem, measure_settings(task.config), limits(task.config), lab.bench.folder / "cache" / "harness"
        )
        self.asked: list[int] = []
        self.broken = False

    def prepare(self, workers: int) -> None:
        self.asked.append(workers)
        if self.broken:
            raise HarnessFault("out of memory")


def evaluation(lab: Lab, *kernels: Built) -> EvaluateTask:
    return EvaluateTask(kernels, lab.bench.baseline, 10.0)


def test_builds_come_back_as_values(lab: Lab) -> None:
    executor = LocalExecutor(lab.build, None, builds=2)
    good, bad = (executor.build(lab.bench.written(n, s)) for n, s in (("good", kernel(2)), ("bad", BROKEN)))
    assert isinstance(good.result(), Built)
    assert isinstance(bad.result(), Rejected)
    executor.close()


def test_a_second_gpu_takes_its_part_and_one_that_is_lost_costs_a_retry(lab: Lab) -> None:
    wrong = lab.build(lab.bench.written("wrong", WRONG))
    assert isinstance(wrong, Built)
    executor = LocalExecutor(lab.build, lab.home, 2, (GPU,), lab.open, together=True)
    try:
        assert executor.places == 1  # not before it knows the task
        executor.prepare(lab.bench.setting)
        executor.wait()
        assert executor.places == 2
        at_home, there = (executor.evaluate(evaluation(lab, lab.bench.baseline, wrong)) for _ in range(2))
        assert at_home.result().elsewhere is None
        found = there.result()
        assert found.elsewhere is not None
        assert found.elsewhere.device == "GPU 1 (GPU-bbbb)"
        assert found.elsewhere.scale == pytest.approx(10.0 / found.elsewhere.base_ms)
        for result in (at_home.result(), found):
            assert [e.verdict == "fail" for e in result.evaluations] == [False, True]
        assert executor.troubles() == []

        lab.opened[-1].close()  # its oracle is gone, as with a GPU that fell off the bus
        at_home, lost = (executor.evaluate(evaluation(lab, wrong)) for _ in range(2))
        assert lost.result().elsewhere is None
        assert lost.result().evaluations[0].verdict == at_home.result().evaluations[0].verdict == "fail"
        (trouble,) = executor.troubles()
        assert trouble.task is not None
        assert trouble.place == "GPU 1 (GPU-bbbb)"
        assert executor.places == 1
    finally:
        executor.close()


def test_a_gpu_that_cannot_be_opened_is_left_out_and_said(lab: Lab) -> None:
    def fail(gpu: GpuFacts) -> Harness:
        raise HarnessFault("out of memory")

    executor = LocalExecutor(lab.build, lab.home, 1, (GPU,), fail, together=True)
    executor.prepare(lab.bench.setting)
    executor.prepare(lab.bench.setting)
    executor.wait()
    assert executor.places == 1
    assert executor.troubles() == [Trouble(None, "GPU 1 (GPU-bbbb)", "out of memory")]
    executor.close()


def test_a_new_best_kernel_must_be_timed_on_each_gpu_first(lab: Lab, tmp_path: Path) -> None:
    better = lab.build(lab.bench.written("better", kernel(4)))
    assert isinstance(better, Built)
    executor = LocalExecutor(lab.build, lab.home, 1, (GPU,), lab.open, together=True)
    try:
        executor.prepare(lab.bench.setting)
        executor.wait()
        assert executor.places == 2
        setting = lab.bench.setting
        executor.prepare(type(setting)(setting.baseline, better, None))
        assert executor.places == 1
        executor.wait()
        assert executor.places == 2
    finally:
        executor.close()


def test_each_gpu_that_is_ready_opens_workers_for_its_share_and_one_that_cannot_is_no_worse_for_it(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    home, there = Ahead(lab), Ahead(lab)
    executor = LocalExecutor(lab.build, home, 1, (GPU,), lambda _: there, together=True)
    with home:
        try:
            home.check_task(lab.bench.baseline.artifact)
            executor.open_workers(3, at_home=4)
            executor.prepare(lab.bench.setting)
            executor.wait()
            assert (home.asked, there.asked) == ([10], [])
            executor.open_workers(0, at_home=4)
            home.broken = there.broken = True
            executor.open_workers(3, at_home=4)
            begun = [executor.evaluate(evaluation(lab, lab.bench.baseline)) for _ in range(2)]
            assert [future.result().elsewhere is None for future in begun] == [True, False]
            assert (home.asked, there.asked) == ([10, 4, 8], [2])
            assert (executor.troubles(), caplog.messages) == ([], [])
            assert executor.places == 2
        finally:
            executor.close()
