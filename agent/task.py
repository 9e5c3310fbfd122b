"""From a config to what the parts below need: the backend, the signature, the bound problem, how to build."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from agent.config import Config, TaskSection
from agent.contract import Contract
from agent.faults import as_exit_codes
from agent.machine import Machine
from agent.paths import cache_folder
from backends.build_cache import private_folder
from backends.registry import detect, get_backend
from backends.triton import TritonBackend
from backends.triton_artifact import write_empty
from backends.types import Argument, Backend, BuildSpec, Built, Rejected, Signature
from profiling.binding import TensorRule, bind, convention_used, evaluate_expression
from profiling.findings import Ceilings, TaskCheck, Work
from profiling.gpu_device import GpuFacts
from profiling.harness.harness import Harness, TritonParts
from profiling.headroom import floor_ms
from profiling.triton_binding import bind_arguments
from profiling.types import Case, Limits, MeasureSettings, Problem, TaskError, Tolerance

# How far a candidate's relative norm error may exceed the baseline's, by the arithmetic that the task allows.
# TF32 errs about 250 times as much as fp32 on a GEMM; `any` leaves the elementwise tolerance to decide.
_BASELINE_FACTOR = {"input": 8.0, "tf32": 512.0, "any": 1e12}
_EPS_FACTOR = 32.0
_WIDEST_FIRST = ("float64", "float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "int8", "uint8")
# The fastest arithmetic on float32 data that a GPU task's `precision` admits, as ceilings name it.
_FASTEST = {"input": "float32", "tf32": "tf32", "any": "float16"}
_PEAK_NAMES = {"float8_e4m3": "float8", "float8_e5m2": "float8", "uint8": "int8"}
# The workers that run a backend's kernels.
_WORKERS: Mapping[str, Literal["cpp", "cuda", "triton"]] = {
    "cpp": "cpp",
    "cuda": "cuda",
    "cutlass": "cuda",
    "triton": "triton",
}


@dataclass(frozen=True, slots=True)
class Task:
    """A task ready to be measured.

    Attributes:
        config: as loaded.
        backend: how its kernels are built.
        baseline: the kernel as given.
        signature: the baseline's.
        problem: bound to tensors and values.
        spec: how each kernel is built.
        notes: what a person should know of the binding.
    """

    config: Config
    backend: Backend
    baseline: Path
    signature: Signature
    problem: Problem
    spec: BuildSpec
    notes: tuple[str, ...]

    @property
    def dtype(self) -> str:
        """The arithmetic whose peak holds the task: on a GPU that of most of its input elements (a bias in float32 does
        not make a bfloat16 product one in float32), or what `precision` admits instead."""
        tensors = self.problem.timed.tensors
        inputs = [t for t in tensors if t.role != "out"] or tensors
        if self.backend.device == "cpu":
            return "float64" if any(t.dtype == "float64" for t in inputs) else "float32"
        elements = {d: sum(t.elements for t in inputs if t.dtype == d) for d in _WIDEST_FIRST}
        most = max(_WIDEST_FIRST, key=lambda dtype: elements[dtype])
        if most == "float32" or not elements[most]:
            return _FASTEST[self.config.task.precision]
        return _PEAK_NAMES.get(most, most)


def prepare_task(config: Config) -> Task:
    """Parse the baseline and bind the task; nothing is built yet.

    Raises:
        ConfigError: the source or the task cannot be bound.
        UnfitEnvironment: the backend's compiler is missing.
    """
    section = config.task
    baseline = section.baseline
    spec = build_spec(section, _hidden(config))
    with as_exit_codes():
        name = detect(baseline) if section.backend == "auto" else section.backend
        backend = get_backend(name)
        where = [section.dims, *(_check_dims(section, extra) for extra in section.check_dims)]
        if isinstance(backend, TritonBackend):
            spec = _with_arguments(backend, section, spec, where)
        signature = backend.signature(baseline, spec)
        cases = _cases(section, signature, spec, where)
        _check_work(section)
    note = None if spec.arguments else convention_used(signature, section.dims, tensor_rules(section))
    tolerance, baseline_factor, eps_factor = _tolerance(section)
    problem = Problem(
        name=section.name,
        signature=signature,
        timed=cases[0],
        checks=cases[1:],
        reference=section.reference,
        tolerance=tolerance,
        baseline_factor=baseline_factor,
        eps_factor=eps_factor,
        backend=_WORKERS[backend.name],
    )
    return Task(config, backend, baseline, signature, problem, spec, (note,) if note else ())


def on_machine(task: Task, machine: Machine) -> Task:
    """The task with what building and measuring must know of the machine."""
    if machine.gpu is None:
        return task
    asked = task.config.device.arch
    return replace(
        task,
        spec=replace(task.spec, arch=machine.gpu.arch if asked == "auto" else asked),
        problem=replace(task.problem, gpu=machine.gpu.uuid),
    )


def contract(task: Task) -> Contract:
    """What the task asks of candidates."""
    return Contract(task.backend, task.signature, task.config.task.allow.libraries)


def build_candidate(task: Task, source: Path, spec: BuildSpec, cache: Path) -> Built | Rejected:
    """Build a kernel and hold it to the baseline's signature and the task's libraries.

    Raises:
        ToolchainError: the compiler is missing or broken.
    """
    return contract(task).build(source, spec, cache)


def build_candidates(
    task: Task, sources: Sequence[tuple[Path, BuildSpec]], cache: Path, cores: int | None
) -> list[Built | Rejected]:
    """The same for several, in parallel, in order."""
    with ThreadPoolExecutor(max_workers=max(1, cores or 1)) as pool:
        return list(pool.map(lambda s: build_candidate(task, s[0], s[1], cache), sources))


def check_candidate(task: Task, source: Path, built: Built) -> Built | Rejected:
    """Hold a kernel that is built already to the baseline's signature and the task's libraries."""
    return contract(task).check(source, task.spec, built)


def build_spec(section: TaskSection, hidden: tuple[Path, ...] = ()) -> BuildSpec:
    """The task's build section; the baseline's own folder is searched for its headers, less what is `hidden` in it."""
    build = section.build
    return BuildSpec(
        flags=build.flags,
        define={name: str(value) for name, value in build.define.items()},
        include=(*build.include, section.baseline.parent),
        std=build.std,
        timeout_s=build.timeout_s,
        hidden=hidden,
    )


def _hidden(config: Config) -> tuple[Path, ...]:
    """What no kernel may read, wherever it lies: runs with their answers, the memory, and what a harness works with."""
    scheme, _, database = config.memory.url.partition(":///")
    memory = _with_log_and_copies(Path(database.partition("?")[0])) if scheme.startswith("sqlite") and database else ()
    own = config.task.baseline.parent.parent  # of a run that goes on from its copies, and may have been moved
    runs = (config.output, own) if (own / "events.jsonl").is_file() else (config.output,)
    return (*runs, cache_folder(), *memory)


def _with_log_and_copies(database: Path) -> tuple[Path, ...]:
    log = (Path(f"{database}-wal"), Path(f"{database}-shm"))
    return (database, *log, *database.parent.glob(f"{database.name}.*.bak"))


def tensor_rules(section: TaskSection) -> Mapping[str, TensorRule] | None:
    """The task's `tensors`, as the binder takes them."""
    if section.tensors is None:
        return None
    return {name: TensorRule(**t.model_dump()) for name, t in section.tensors.items()}


def open_harness(
    task: Task,
    machine: Machine,
    cache: Path,
    *,
    stopped: Callable[[], bool] | None = None,
    waiting: Callable[[], None] | None = None,
) -> Harness:
    """What measures the task's kernels on this machine; `cache` is the machine-wide folder. To be closed."""
    return Harness(
        task.problem,
        measure_settings(task.config),
        limits(task.config),
        cache / "harness",
        environment=machine.worker_environment(),
        triton=triton_parts(task.spec.arch, cache) if isinstance(task.backend, TritonBackend) else None,
        stopped=stopped,
        waiting=waiting,
    )


def tune(backend: Backend, harness: Harness, built: Built, cache: Path) -> Built | Rejected:
    """A Triton build whose autotuners have chosen on the GPU; any other build as it is."""
    if not isinstance(backend, TritonBackend) or not backend.needs_tuning(built):
        return built
    choices = harness.tune(built.artifact)
    return choices if isinstance(choices, Rejected) else backend.freeze(built, choices, cache)


def triton_parts(arch: str, cache: Path) -> TritonParts:
    """What workers of Triton kernels need on a GPU of this architecture; `cache` is the machine-wide folder."""
    empty = cache / "harness" / f"empty-{arch}"
    if not empty.is_dir():
        with private_folder(cache / "harness", "harness-") as folder:
            write_empty(folder / "empty", arch)
            with suppress(OSError):  # another run made it meanwhile
                os.rename(folder / "empty", empty)
    return TritonParts(arch, cache, empty)


def measure_settings(config: Config) -> MeasureSettings:
    """The `measure` section for the harness."""
    measure = config.measure
    return MeasureSettings(
        warmup_ms=measure.warmup_ms,
        min_samples=measure.min_samples,
        min_time_s=measure.min_time_s,
        max_time_s=measure.max_time_s,
        l2=measure.l2,
        pairs=measure.pairs,
        threads=config.device.threads,
    )


def limits(config: Config) -> Limits:
    """The walls around one worker."""
    gib = config.measure.memory_gib
    return Limits(config.measure.call_timeout_s, None if gib is None else int(gib * 2**30))


def work_of(task: Task, check: TaskCheck | None) -> Work:
    """Operations and least bytes of one call: the config's, else the reference's, else (bytes) one pass."""
    section = task.config.task
    dims = section.dims
    flops = None if section.work.flops is None else evaluate_expression(section.work.flops, dims, "task.work.flops")
    moved = None if section.work.bytes is None else evaluate_expression(section.work.bytes, dims, "task.work.bytes")
    if check is not None:
        flops = check.flops if flops is None else flops
        moved = check.bytes if moved is None else moved
    return Work(flops, one_pass_bytes(task.problem.timed) if moved is None else moved)


def suspect_ms(work: Work, ceilings: Ceilings, task: Task, gpu: GpuFacts | None) -> float | None:
    """A time under this is not believed, ms; None where nothing can be said.

    On a GPU honest work may use another pipe than the inputs' (float32 products split over TF32), and what it writes
    may stay in L2, as everything may where caches are hot.
    """
    if gpu is None:
        return floor_ms(work, ceilings, task.dtype, theoretical=True)
    rates = ceilings.theoretical_flops
    fastest = max(rates, key=lambda name: rates[name], default=task.dtype)
    cold = task.config.measure.l2 == "cold"
    moved = None if work.bytes is None or not cold else max(0.0, work.bytes - (gpu.l2_bytes or 0))
    return floor_ms(Work(work.flops, moved), ceilings, fastest, theoretical=True)


def one_pass_bytes(case: Case) -> float:
    """Each input read once, each output written once."""
    total = 0
    for tensor in case.tensors:
        size = tensor.elements * _element_bytes(tensor.dtype)
        total += 2 * size if tensor.role == "inout" else size
    return float(total)


def _element_bytes(dtype: str) -> int:
    if dtype == "bool" or "8" in dtype:
        return 1
    return 2 if "16" in dtype else 4 if "32" in dtype else 8


def _check_dims(section: TaskSection, extra: Mapping[str, int]) -> Mapping[str, int]:
    unknown = sorted(set(extra) - set(section.dims))
    if unknown:
        raise TaskError(f"task.check_dims: `{unknown[0]}` is not one of the dims ({', '.join(section.dims)})")
    return {**section.dims, **extra}


def described(task: Task, where: Sequence[Mapping[str, int]]) -> list[tuple[Argument, ...]]:
    """What the baseline's `setup` makes at each of these dims; nothing where signatures say it all (not Triton).

    Raises:
        SourceError: `setup` fails there.
    """
    if not isinstance(task.backend, TritonBackend):
        return [() for _ in where]
    spec = _with_arguments(task.backend, task.config.task, task.spec, where)
    return [spec.arguments, *spec.elsewhere]


def bound_case(task: Task, dims: Mapping[str, int], arguments: Sequence[Argument]) -> Case:
    """The task at other dims, with what `described` gave there. Raises TaskError: it cannot be bound to them."""
    section = task.config.task
    if arguments:
        return bind_arguments(arguments, dims, tensor_rules(section), section.scalars)
    return bind(task.signature, dims, tensor_rules(section), section.scalars)


def _cases(
    section: TaskSection, signature: Signature, spec: BuildSpec, where: Sequence[Mapping[str, int]]
) -> tuple[Case, ...]:
    rules = tensor_rules(section)
    if spec.arguments:
        made = (spec.arguments, *spec.elsewhere)
        return tuple(bind_arguments(a, dims, rules, section.scalars) for a, dims in zip(made, where, strict=True))
    return tuple(bind(signature, dims, rules, section.scalars) for dims in where)


def _with_arguments(
    backend: TritonBackend, section: TaskSection, spec: BuildSpec, where: Sequence[Mapping[str, int]]
) -> BuildSpec:
    """What the baseline's `setup` makes at each dims, with the task's own scalars."""
    made = backend.describe_all(section.baseline, where, section.build.timeout_s)
    given = [
        tuple(replace(a, value=section.scalars.get(a.name, a.value)) if a.shape is None else a for a in arguments)
        for arguments in made
    ]
    return replace(spec, arguments=given[0], elsewhere=tuple(given[1:]))


def _check_work(section: TaskSection) -> None:
    for name, expression in (("flops", section.work.flops), ("bytes", section.work.bytes)):
        if expression is not None and evaluate_expression(expression, section.dims, f"task.work.{name}") <= 0:
            raise TaskError(f"task.work.{name}: `{expression}` is not positive")


def _tolerance(section: TaskSection) -> tuple[Tolerance | None, float, float]:
    """The task's own bounds, None where the reference gives them, and the two factors of the norm check."""
    given = section.tolerance
    baseline_factor = (given and given.baseline_factor) or _BASELINE_FACTOR[section.precision]
    eps_factor = (given and given.eps_factor) or _EPS_FACTOR
    if given is None:
        return None, baseline_factor, eps_factor
    return Tolerance(given.atol, given.rtol), baseline_factor, eps_factor
