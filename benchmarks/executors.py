"""How much two cores and two GPUs are worth: builds with one and two cores, evaluations with one and two GPUs.

`.venv/bin/python benchmarks/executors.py [builds] [evaluations]`, on a quiet machine; both where neither is named.
Kernels are those of the recorded answers of `quickstart` (g++) and `gemm` (nvcc; GPU), eight each. One and two take
turns (1221 …) in one process, so that what drifts meets both; what counts is the ratio of their medians, and the target
is 1.8 each. What this machine lacks is skipped, saying what. `--repeats N` (default 4), `--dims N` of the GEMM on GPUs
(2048).

Builds go through the local executor into an empty cache each time, on one core and on two of different physical cores.
Evaluations are whole ones, all safety layers on, at the end of which every kernel has a verdict and a time that can be
ranked. What a run does beside other things is done before the clock starts, and how long it takes is printed too. While
models are asked, the second GPU tests the task and times the best kernel. While branches are built, workers open their
CUDA contexts, two for each kernel: with one GPU all sixteen there, with two each those of its share. So neither the
times of one GPU nor those of two contain it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from agent.config import Config, load_config
from agent.elsewhere import Elsewhere, comparable_ms
from agent.errors import RoofclimbError
from agent.executors.choose import open_executor
from agent.executors.local import LocalExecutor
from agent.executors.spread import spread
from agent.executors.types import BuildTask, Setting
from agent.faults import as_exit_codes
from agent.llm.parse import extract_code
from agent.llm.recording import read_recording
from agent.machine import Machine, find_machine, say_warning
from agent.paths import find_config
from agent.task import Task, on_machine, open_harness, prepare_task, suspect_ms, work_of
from backends.types import Built, Rejected, ToolchainError
from profiling.device import cpu_facts, pinned_cores
from profiling.findings import Evaluation
from profiling.gpu_others import other_gpus

TARGET = 1.8
ARCH = "sm_90"  # what nvcc builds for where there is no GPU


def recorded_kernels(task: Task, folder: Path) -> list[Path]:
    """The branches of the first two recorded iterations, as files."""
    llm = task.config.llm
    assert llm is not None
    assert llm.answers is not None
    found = []
    for step in (f"iter{i}-branch-b{b}-0" for i in (1, 2) for b in range(4)):
        recording = read_recording(llm.answers, step)
        if recording is not None:
            path = folder / step / f"kernel{task.backend.suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(extract_code(recording.reply.text, task.backend.language), encoding="utf-8")
            found.append(path)
    return found


def in_turn(repeats: int, one: Callable[[], float], two: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Seconds of each, in the order 1 2 2 1 1 2 …"""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(repeats):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            times[which].append((one, two)[which]())
    return times


def report(what: str, unit: str, times: tuple[Sequence[float], Sequence[float]]) -> None:
    """Both medians, and what the second is worth."""
    print(f"{what}:")
    for number, found in enumerate(times, 1):
        units = unit if number == 1 else f"{unit}s"
        middle = statistics.median(found)
        print(f"  {number} {units:5} {middle:7.2f} s  ({min(found):.2f} to {max(found):.2f})")
    ratio = statistics.median(times[0]) / statistics.median(times[1])
    print(f"  ratio {ratio:.2f}, target {TARGET}: {'met' if ratio >= TARGET else 'MISSED'}", flush=True)


def builds(name: str, repeats: int, scratch: Path) -> None:
    """Builds with one core and with two."""
    try:
        cores = pinned_cores(2)
        facts = cpu_facts()
        with as_exit_codes():
            task = prepare_task(load_config(find_config(name)))
            task = replace(task, spec=replace(task.spec, arch=ARCH if task.backend.device == "gpu" else ""))
            compiler = next(iter(task.backend.toolchain().values()))
    except (ValueError, RoofclimbError) as error:
        print(f"builds of {name}: skipped: {error}")
        return
    sources = recorded_kernels(task, scratch / name)
    allowed = os.sched_getaffinity(0)
    runs = iter(range(1000))

    def build_on(*chosen: int) -> float:
        # Threads and compilers inherit the cores, and the executor counts them as a run does.
        os.sched_setaffinity(0, chosen)
        try:
            cache = scratch / f"cache-{name}-{next(runs)}"
            machine = Machine(replace(facts, usable_cores=len(chosen)), None)
            executor = open_executor(task, machine, None, cache, lambda: False)
            start = time.perf_counter()
            found = [future.result() for future in [executor.build(BuildTask(s, task.spec)) for s in sources]]
            spent = time.perf_counter() - start
            executor.close()
        finally:
            os.sched_setaffinity(0, allowed)
        broken = [built.reason for built in found if not isinstance(built, Built)]
        if broken:
            raise SystemExit(f"a recorded kernel of {name} does not build: {broken[0]}")
        return spent

    build_on(cores[0])  # the compiler's own files are in memory from here on
    times = in_turn(repeats, lambda: build_on(cores[0]), lambda: build_on(*cores))
    report(f"{len(sources)} builds of {name} ({compiler})", "core", times)


def evaluations(repeats: int, size: int, scratch: Path) -> None:
    """Evaluations with one GPU and with two."""
    overrides = [f"task.dims={{M: {size}, N: {size}, K: {size}}}", "search.branches=2"]
    config = load_config(find_config("gemm"), overrides)
    try:
        with as_exit_codes():
            task = prepare_task(config)
            machine = find_machine(config, task.backend, say_warning)
        assert machine.gpu is not None
        others = other_gpus(machine.gpu, ())
    except (RoofclimbError, ToolchainError) as error:
        print(f"evaluations: skipped: {error}")
        return
    if not others:
        print(f"evaluations: skipped: this machine has one {machine.gpu.name}, and two are needed")
        return
    with as_exit_codes():
        _evaluations(config, on_machine(task, machine), machine, repeats, scratch)


def _evaluations(config: Config, task: Task, machine: Machine, repeats: int, scratch: Path) -> None:
    cache = scratch / "cache"
    ceilings = machine.ceilings(cache, config)
    with open_harness(task, machine, cache) as home:
        both = open_executor(task, machine, home, cache, lambda: False)
        assert isinstance(both, LocalExecutor)
        alone = LocalExecutor(lambda _: Rejected("build", "not built here"), home, 1, together=True)
        try:
            sources = [task.baseline, *recorded_kernels(task, scratch / "gemm")]
            futures = [both.build(BuildTask(source, task.spec)) for source in sources]
            baseline, *kernels = [built for built in (f.result() for f in futures) if isinstance(built, Built)]
            check = home.check_task(baseline.artifact)
            floor_ms = suspect_ms(work_of(task, check), ceilings, task, machine.gpu)
            home.set_floor(floor_ms)
            start = time.perf_counter()
            setting = Setting(baseline, baseline, floor_ms)
            both.prepare(setting)
            both.wait()
            print(f"{machine.gpu and machine.gpu.name}: a second GPU made ready in {time.perf_counter() - start:.2f} s")
            for trouble in both.troubles():
                raise SystemExit(f"evaluations: {trouble.place} cannot be used: {trouble.reason}")
            base = home.evaluate(baseline.artifact)
            if base.timing is None:
                raise SystemExit(f"evaluations: the baseline cannot be timed: {base.reason}")
            if both.places != 2:
                raise SystemExit("evaluations: the second GPU is not ready; is somebody else on it?")
            _take_turns((alone, both), kernels, baseline, base.timing.median_ms, repeats)
        finally:
            alone.close()
            both.close()


def _take_turns(
    executors: tuple[LocalExecutor, LocalExecutor],
    kernels: Sequence[Built],
    base: Built,
    base_ms: float,
    repeats: int,
) -> None:
    """Both, warm, in turn; and what they found, so that a quick failure is not taken for speed."""
    seen: dict[str, list[tuple[Evaluation, Elsewhere | None]]] = {kernel.key: [] for kernel in kernels}
    opened: dict[LocalExecutor, list[float]] = {executor: [] for executor in executors}

    def evaluate_with(executor: LocalExecutor) -> float:
        start = time.perf_counter()
        executor.open_workers(len(kernels))
        executor.wait()
        opened[executor].append(time.perf_counter() - start)
        start = time.perf_counter()
        for places, found in spread(executor, kernels, base, base_ms, lambda: None):
            for place, evaluation in zip(places, found.evaluations, strict=True):
                seen[kernels[place].key].append((evaluation, found.elsewhere))
        spent = time.perf_counter() - start
        for trouble in executor.troubles():
            print(f"  trouble: {trouble}")
        return spent

    for executor in executors:
        evaluate_with(executor)
    for found in seen.values():
        found.clear()
    for seconds in opened.values():
        seconds.clear()
    alone, both = executors
    times = in_turn(repeats, lambda: evaluate_with(alone), lambda: evaluate_with(both))
    report(f"{len(kernels)} evaluations of gemm, places {alone.places} and {both.places}", "GPU", times)
    one, two = (f"{statistics.median(opened[executor]):.2f} s" for executor in executors)
    print(f"  contexts opened before, not counted: {one} for one GPU, {two} for two")
    print("  kernel: verdicts; median on the first GPU, and by what it took on the second, ms")
    for key, found in seen.items():
        verdicts = ", ".join(sorted({evaluation.verdict for evaluation, _ in found}))
        here = [ms for e, elsewhere in found if elsewhere is None and (ms := comparable_ms(e, None)) is not None]
        there = [ms for e, elsewhere in found if elsewhere and (ms := comparable_ms(e, elsewhere)) is not None]
        shown = " ".join(f"{statistics.median(ms):9.4f}" if ms else "        -" for ms in (here, there))
        print(f"  {key[:8]}: {verdicts:14} {shown}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=("builds", "evaluations"))
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--dims", type=int, default=2048)
    given = parser.parse_args()
    parts = given.parts or ("builds", "evaluations")
    with tempfile.TemporaryDirectory(prefix="roofclimb-benchmark-") as scratch:
        for name in ("quickstart", "gemm") if "builds" in parts else ():
            builds(name, given.repeats, Path(scratch))
        if "evaluations" in parts:
            evaluations(given.repeats, given.dims, Path(scratch))


if __name__ == "__main__":
    main()
