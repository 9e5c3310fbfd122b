"""The process in which a Triton kernel's own code runs, to be described or compiled. There is no GPU in it.

`main` takes a request as JSON on standard input and answers with JSON, on what was standard output when it began.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import os
import re
import resource
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn, TypedDict

import torch
from triton.compiler.errors import CompilationError
from triton.runtime.autotuner import Autotuner, Config

from backends import triton_standin as standin
from backends import triton_tensors as tensors
from backends.confinement import confine
from backends.torch_arithmetic import computed as computed_by_torch
from backends.triton_runtime import Asked, identity, load, located, scalar
from backends.walls import Walls

_DTYPES = {
    getattr(torch, name): {"float8_e4m3fn": "float8_e4m3"}.get(name, name)
    for name in (
        *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "bool"),
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    )
    if hasattr(torch, name)
}
_META = re.compile(r"\bmeta\b", re.IGNORECASE)

Answer = dict[str, object]


class Arg(TypedDict):
    """An argument as JSON."""

    name: str
    dtype: str
    shape: list[int] | None
    value: int | float | bool | None
    output: bool


class Fault(Exception):
    """What is wrong with the kernel, in one line, and the log behind it."""

    def __init__(self, reason: str, evidence: str = "") -> None:
        super().__init__(reason)
        self.evidence = evidence


def _install(device: standin.Device, recorder: standin.Recorder) -> None:
    standin.install(device, recorder)
    tensors.replace_torch_cuda(device)


def describe(path: Path, device: standin.Device, where: Sequence[Mapping[str, int]]) -> Answer:
    """The arguments that the kernel's `setup` makes at each of these dims."""
    _install(device, standin.Recorder(lambda: None))
    return {"calls": [{"arguments": _described(path, dims)} for dims in where]}


def _described(path: Path, dims: Mapping[str, int]) -> list[Arg]:
    try:
        made = _set_up(path, dims, "meta")
    except BaseException:
        # It may need values: then for real, in memory.
        try:
            made = _set_up(path, dims, "cpu")
        except BaseException as error:
            raise Fault(_located(error, path)) from error
    return _arguments(made, path.name)


def _set_up(path: Path, dims: Mapping[str, int], place: str) -> object:
    with tensors.elsewhere(place):
        setup = load(path).setup
        try:
            inspect.signature(setup).bind(**dims, seed=0)
        except TypeError as error:
            raise Fault(
                f"{path.name}: setup({', '.join(dims)}, seed): {error}; dims and seed come as keywords"
            ) from None
        return setup(**dims, seed=0)


def _limit_resources() -> None:
    """Three quarters of the memory that is free now, beyond what is mapped already, and no file over 256 MiB."""
    with open("/proc/meminfo", encoding="ascii") as file:
        available = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))
    with open("/proc/self/statm", encoding="ascii") as file:
        mapped = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (mapped + available // 4 * 3,) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 20,) * 2)


def _walls(folder: Path) -> Walls:
    """Python, its packages and ours of the compilers can be read, and what is made stays in `folder`."""
    ours = Path(__file__).resolve().parent
    python = {Path(name).resolve() for name in (sys.prefix, sys.base_prefix, *filter(None, sys.path))}
    libraries = map(Path, filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)))
    return Walls(
        writable=(folder,),
        readable=(Path("/proc"), Path("/sys/devices")),
        tools=(*(python - {ours.parent, folder.resolve()}), ours, *libraries),
    )


def _arguments(made: object, name: str) -> list[Arg]:
    shape = '{"inputs": {name: value}, "outputs": [name]}'
    if not isinstance(made, dict) or not isinstance(made.get("inputs"), dict):
        raise Fault(f"{name}: setup returned {type(made).__name__}; it returns {shape}")
    inputs, outputs = made["inputs"], made.get("outputs")
    if not isinstance(outputs, (list, tuple)) or not outputs:
        raise Fault(f"{name}: setup names no outputs; it returns {shape}")
    for output in outputs:
        if not isinstance(inputs.get(output), torch.Tensor):
            raise Fault(f"{name}: setup's output `{output}` is not a tensor among its inputs")
    return [_argument(str(key), value, key in outputs, name) for key, value in inputs.items()]


def _argument(key: str, value: object, output: bool, name: str) -> Arg:
    where = f"{name}: setup's input `{key}`"
    if isinstance(value, torch.Tensor):
        if value.dtype not in _DTYPES:
            raise Fault(f"{where} has dtype {value.dtype}, which is not supported")
        if not value.is_contiguous():
            raise Fault(f"{where} is not contiguous; kernels are given contiguous tensors: pass its strides as scalars")
        return {
            "name": key,
            "dtype": _DTYPES[value.dtype],
            "shape": list(value.shape),
            "value": None,
            "output": output,
        }
    for kind, dtype in ((bool, "bool"), (int, "int64"), (float, "float64")):
        if isinstance(value, kind):
            return {"name": key, "dtype": dtype, "shape": None, "value": kind(value), "output": False}
    raise Fault(f"{where} is a {type(value).__name__}; inputs are tensors, ints, floats and bools")


def build(path: Path, device: standin.Device, given: Sequence[Sequence[Arg]], untold: int) -> Answer:
    """Compile, for this target, every Triton kernel that `run_kernel` launches with each of these sets of arguments.

    A reason does not tell the last `untold` of them.
    """
    tuners = Tuners()
    recorder = standin.Recorder(tuners.choice)
    _install(device, recorder)
    computed: dict[str, None] = {}
    ends: list[int] = []
    called = ""
    try:
        with tensors.elsewhere("meta"):
            run = load(path).run_kernel
            for arguments in given:
                shown = ", ".join(map(_shown, arguments)) if len(ends) < len(given) - untold else "a hidden shape"
                called = f"called with {shown}: " if ends else ""
                with computed_by_torch() as found:
                    run(**{a["name"]: _stand_in(a) for a in arguments})
                computed.update(dict.fromkeys(found))
                ends.append(len(recorder.launches))
    except BaseException as error:
        raise _build_fault(error, path, called) from error
    launches = [dataclasses.asdict(launch) for launch in recorder.launches]
    return {
        "launches": launches[: ends[0]],
        "others": launches[ends[0] :],
        "usage": recorder.usage,
        "tuners": tuners.configs,
        "torch": list(computed),
        "launchers": recorder.prebuilt,
    }


def _shown(argument: Arg) -> str:
    shape = argument["shape"]
    return f"{argument['name']}={argument['value']}" if shape is None else f"{argument['name']}{shape}"


def _stand_in(argument: Arg) -> object:
    if argument["shape"] is None:
        return scalar(argument["dtype"], argument["value"])
    dtype = next(dtype for dtype, name in _DTYPES.items() if name == argument["dtype"])
    return torch.empty(argument["shape"], dtype=dtype, device="meta")


def _build_fault(error: BaseException, path: Path, called: str) -> Fault:
    chain: list[BaseException] = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    compilation = next((e for e in reversed(chain) if isinstance(e, CompilationError)), None)
    if compilation is None:
        return Fault(called + _located(error, path), str(error))
    text = str(compilation).strip()
    said = compilation.error_message or str(chain[-1] if chain[-1] is not compilation else text.splitlines()[-1])
    return Fault(f"{called}{path.name}: {' '.join(str(said).split())}", text)


def _located(error: BaseException, path: Path) -> str:
    if isinstance(error, Fault):
        return str(error)
    where = located(error, path)
    if isinstance(error, (RuntimeError, NotImplementedError)) and _META.search(where):
        return f"{where} (values of tensors cannot be read here: kernels are compiled before there is data)"
    return where


class Tuners:
    """Has Triton's autotuners compile all their configurations, several at once, and notes what each launch serves.

    Attributes:
        configs: for each autotuner its configurations, as text.
    """

    def __init__(self) -> None:
        self.configs: dict[str, list[str]] = {}
        self._running: list[Autotuner] = []
        self._benching: int | None = None
        self._wrap_run()
        self._wrap_bench()

    def choice(self) -> standin.Choice | None:
        """What a launch made now belongs to: an autotuner, its key, and the index of its configuration."""
        if not self._running:
            return None
        tuner = self._running[-1]
        index = self._benching if self._benching is not None else tuner.configs.index(tuner.best_config)
        return standin.Choice(identity(tuner), tuner.cache.asked, index)

    def _wrap_run(self) -> None:
        original = Autotuner.run

        def run(tuner: Autotuner, *args: object, **kwargs: object) -> object:
            if len(tuner.configs) < 2:
                return original(tuner, *args, **kwargs)
            self.configs[identity(tuner)] = [str(config) for config in tuner.configs]
            tuner.cache = Asked(tuner.cache, lambda: compile_all(tuner, args, kwargs))
            self._running.append(tuner)
            try:
                return original(tuner, *args, **kwargs)
            finally:
                self._running.pop()

        Autotuner.run = run

    def _wrap_bench(self) -> None:
        original = Autotuner._bench

        def bench(tuner: Autotuner, *args: object, config: Config, **meta: object) -> object:
            self._benching = tuner.configs.index(config)
            try:
                return original(tuner, *args, config=config, **meta)
            finally:
                self._benching = None

        Autotuner._bench = bench


def compile_all(tuner: Autotuner, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Fill Triton's cache with all configurations, in processes: its compiler holds the interpreter for long.

    What does not compile is left to the autotuner, which meets it again.
    """
    configs = tuner.prune_configs(dict(kwargs))
    count = min(len(configs), len(os.sched_getaffinity(0)))
    started = []
    for first in range(count):
        pid = os.fork()
        if pid == 0:
            _compile_some(tuner, configs[first::count], args, kwargs)
        started.append(pid)
    for pid in started:
        os.waitpid(pid, 0)


def _compile_some(
    tuner: Autotuner, configs: Sequence[Config], args: Sequence[object], kwargs: Mapping[str, object]
) -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for config in configs:
        with contextlib.suppress(Exception):
            meta = {**kwargs, **config.all_kwargs()}
            if config.pre_hook is not None:
                config.pre_hook({**tuner.nargs, **meta})
            tuner.fn.run(*args, **meta)
    os._exit(0)


def main() -> None:
    """Answer one request."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a kernel prints is no answer
    print("ready", file=answer, flush=True)
    warnings.simplefilter("ignore")
    request = json.loads(sys.stdin.read())
    path, device = Path(request["source"]), standin.Device.of(int(request["capability"]))
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # it may be measuring
    confine(Path(request["folder"]))
    _limit_resources()
    _walls(Path(request["folder"])).enter()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        made = (
            describe(path, device, request["dims"])
            if "dims" in request
            else build(path, device, request["arguments"], request["untold"])
        )
    except Fault as fault:
        made = {"fault": str(fault), "evidence": fault.evidence}
    json.dump(made, answer)
    answer.flush()
    os._exit(0)  # without a wait for threads that the kernel may have left
