"""This machine: builds on all its cores, evaluations on the run's own device and on its other GPUs."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from agent.elsewhere import Elsewhere
from agent.executors.spread import shares
from agent.executors.station import Station, Unfit
from agent.executors.types import BuildTask, EvaluateTask, Found, Setting, Trouble
from backends.types import Built, Rejected, ToolchainError
from profiling.device import helper_cores, spare_cores
from profiling.gpu_device import GpuFacts
from profiling.harness.harness import Harness
from profiling.types import HarnessFault, TaskError

_LOST = (HarnessFault, TaskError, ToolchainError, Unfit, OSError)
_WORKERS = 2  # of one kernel: in one it is checked, in the other timed


class Helper:
    """Another GPU, worked by a thread of its own that stands on that GPU's cores.

    What it starts inherits the cores, and ends with the thread.

    Args:
        gpu: which.
        cores: none leaves it all that the process has.
        open_harness: opens one on a GPU.
    """

    def __init__(self, gpu: GpuFacts, cores: Sequence[int], open_harness: Callable[[GpuFacts], Harness]) -> None:
        self.name = f"GPU {gpu.index} ({gpu.uuid})"
        self._gpu, self._open = gpu, open_harness
        self._pool = ThreadPoolExecutor(1, f"gpu{gpu.index}", initializer=_stand_on, initargs=(tuple(cores),))
        self._station: Station | None = None
        self._ready: set[str] = set()
        self.fault: str | None = None

    def prepare(self, setting: Setting) -> Future[None]:
        """Begin to open the harness, test the task, and time the best kernel, as far as that is not done."""
        return self._pool.submit(self._prepare, setting)

    def ready(self, base: Built) -> bool:
        """Whether it can evaluate beside this best kernel."""
        return self.fault is None and base.key in self._ready

    def open_workers(self, workers: int) -> None:
        """Let workers open the GPU, before what it is given to evaluate after this. It must be ready."""
        self._pool.submit(self._open_workers, workers).add_done_callback(Future.result)  # which logs a bug

    def evaluate(self, task: EvaluateTask) -> Future[Found]:
        """Begin to evaluate. The result raises what is no verdict on a kernel."""
        return self._pool.submit(self._evaluate, task)

    def wait(self) -> None:
        """Until nothing goes on."""
        self._pool.submit(lambda: None).result()

    def close(self) -> None:
        """End what it has. Waits for what goes on."""
        self._pool.submit(self._end)
        self._pool.shutdown()

    def _prepare(self, setting: Setting) -> None:
        if self.fault is not None:
            return
        try:
            if self._station is None:
                harness = self._open(self._gpu)
                try:
                    self._station = Station(harness, setting.baseline.artifact, setting.floor_ms)
                except BaseException:
                    harness.close()
                    raise
            self._station.time_of(setting.base.key, setting.base.artifact)
            self._ready.add(setting.base.key)
        except BaseException as error:
            self._blame(error, setting.base)
            raise

    def _open_workers(self, workers: int) -> None:
        assert self._station is not None
        _as_far_as_that_goes(self._station.open_workers, workers)

    def _evaluate(self, task: EvaluateTask) -> Found:
        assert self._station is not None
        try:
            base_ms = self._station.time_of(task.base.key, task.base.artifact)
            found = self._station.evaluate([built.artifact for built in task.kernels])
        except BaseException as error:
            self._blame(error, task.base)
            raise
        return Found(found, Elsewhere(device=self.name, base_ms=base_ms, scale=task.base_ms / base_ms))

    def _blame(self, error: BaseException, base: Built) -> None:
        """A best kernel that cannot be timed now may be so at the next iteration; anything else is for good."""
        self._ready.discard(base.key)
        if not isinstance(error, Unfit):
            self.fault = str(error)

    def _end(self) -> None:
        if self._station is not None:
            self._station.close()


class LocalExecutor:
    """Spreads over this machine.

    Args:
        build: builds one candidate here.
        home: the run's own harness; None where nothing can be measured.
        builds: how many are made at once.
        gpus: beside the run's own.
        open_harness: opens one on such a GPU.
        together: whether several kernels are best evaluated in one go, as they are on a GPU.
    """

    def __init__(
        self,
        build: Callable[[BuildTask], Built | Rejected],
        home: Harness | None,
        builds: int,
        gpus: Sequence[GpuFacts] = (),
        open_harness: Callable[[GpuFacts], Harness] | None = None,
        *,
        together: bool = False,
    ) -> None:
        self._build, self._home = build, home
        self.together = together
        self._builders = ThreadPoolExecutor(builds, "build")
        self._lane = ThreadPoolExecutor(1, "home")
        self._troubles: queue.SimpleQueue[Trouble] = queue.SimpleQueue()
        spare = spare_cores()
        apart = helper_cores(len(gpus), spare)
        self.helpers = tuple(
            Helper(gpu, cores, open_harness) for gpu, cores in zip(gpus, apart, strict=True) if open_harness is not None
        )
        taken = {core for cores in apart for core in cores}
        # Where the cores do not suffice to set some apart for each GPU, nothing is built beside what is timed.
        self.spare_cores = () if gpus and not taken else tuple(core for core in spare if core not in taken)
        self._base: Built | None = None
        self._given: dict[Helper | None, list[Future[Found]]] = {None: []}

    @property
    def places(self) -> int:
        """The run's own device, and the GPUs that are ready for the best kernel."""
        return 1 + len(self._free_helpers())

    def prepare(self, setting: Setting) -> None:
        """The other GPUs begin to learn it, each on its own cores, while models think."""
        self._base = setting.base
        for helper in self.helpers:
            if helper.fault is None:
                helper.prepare(setting).add_done_callback(partial(self._told, helper))

    def open_workers(self, kernels: int, at_home: int = 0) -> None:
        """On every GPU that is ready now, for its share of the kernels; on the run's own `at_home` with them."""
        helpers = self._free_helpers()
        home, *others = (_WORKERS * len(share) for share in shares(kernels, 1 + len(helpers)))
        if self._home is not None:
            done = self._lane.submit(_as_far_as_that_goes, self._home.prepare, home + at_home)
            done.add_done_callback(Future.result)  # which logs a bug
        for helper, workers in zip(helpers, others, strict=True):
            if workers:
                helper.open_workers(workers)

    def wait(self) -> None:
        """Until every GPU is ready, or out, and the workers that were to open them have."""
        self._lane.submit(lambda: None).result()
        for helper in self.helpers:
            helper.wait()

    def build(self, task: BuildTask) -> Future[Built | Rejected]:
        """On any core."""
        return self._builders.submit(self._build, task)

    def evaluate(self, task: EvaluateTask) -> Future[Found]:
        """Where least is waited for; on the run's own device first, whose times need no scale."""
        helper = min((None, *self._free_helpers()), key=self._load)
        if helper is None:
            given = self.at_home(task)
        else:
            given = Future()
            helper.evaluate(task).add_done_callback(lambda done: self._or_home(task, helper, done, given))
        self._given.setdefault(helper, []).append(given)
        return given

    def at_home(self, task: EvaluateTask) -> Future[Found]:
        """On the run's own device."""
        return self._lane.submit(self._at_home, task)

    def troubles(self) -> list[Trouble]:
        """What went wrong since this was asked last."""
        found = []
        while not self._troubles.empty():
            found.append(self._troubles.get())
        return found

    def close(self) -> None:
        """Give everything back."""
        for helper in self.helpers:
            helper.close()
        self._lane.shutdown()
        self._builders.shutdown(cancel_futures=True)

    def _free_helpers(self) -> list[Helper]:
        return [helper for helper in self.helpers if self._base is not None and helper.ready(self._base)]

    def _load(self, place: Helper | None) -> int:
        waiting = self._given[place] = [given for given in self._given.get(place, []) if not given.done()]
        return len(waiting)

    def _at_home(self, task: EvaluateTask) -> Found:
        assert self._home is not None
        return Found(tuple(self._home.evaluate_each([built.artifact for built in task.kernels])), None)

    def _told(self, helper: Helper, done: Future[None]) -> None:
        error = done.exception()
        if error is not None and not isinstance(error, InterruptedError):
            self._troubles.put(Trouble(None, helper.name, str(error)))

    def _or_home(self, task: EvaluateTask, helper: Helper, done: Future[Found], result: Future[Found]) -> None:
        """What a GPU found; what was lost with it is found at home."""
        error = done.exception()
        if error is None:
            result.set_result(done.result())
        elif isinstance(error, _LOST) and not isinstance(error, InterruptedError):
            self._troubles.put(Trouble(f"evaluation of {len(task.kernels)}", helper.name, str(error)))
            self._lane.submit(self._at_home, task).add_done_callback(lambda again: _pass_on(again, result))
        else:
            result.set_exception(error)


def _pass_on(done: Future[Found], result: Future[Found]) -> None:
    error = done.exception()
    if error is None:
        result.set_result(done.result())
    else:
        result.set_exception(error)


def _as_far_as_that_goes(prepare: Callable[[int], None], workers: int) -> None:
    """What is broken shows again where a measurement needs it, and a stop is seen by the run itself."""
    with suppress(*_LOST):
        prepare(workers)


def _stand_on(cores: tuple[int, ...]) -> None:
    if cores:
        os.sched_setaffinity(0, cores)
