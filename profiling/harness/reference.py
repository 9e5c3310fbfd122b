"""The user's reference module: imported, called in float64, and timed in its own types."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import torch

from profiling.harness.arena import out_of_memory, torch_dtype
from profiling.harness.statistics import median
from profiling.types import Case, TaskError, Tensor, Tolerance

_SENTINEL = 0x7FF8_5AFE_C0DE_D00D  # a quiet NaN with a payload that no arithmetic makes
_OWN_S = 120.0  # no step of our own, between two calls into the module, takes as long
_GPU_CALLS, _GPU_WARM = 23, 3
_HOLD_CYCLES = 1_000_000  # half a millisecond and more
_TELLING_BITS = 64  # of random filling that stay as they were only if nothing was written
_NO_MATH = (torch.uint16, torch.uint32, torch.uint64)


class Reference:
    """A loaded reference.

    Args:
        path: the module.
        phase: tells the controller how many seconds the next thing may take; it ends us when they are over.
        limit_s: of one call into the module.

    Raises:
        TaskError: the module cannot be imported or has no `reference`.
    """

    def __init__(self, path: Path, phase: Callable[[str, float], None], limit_s: float) -> None:
        self._name = path.name
        self._phase = phase
        self._limit_s = limit_s
        self._module = self._import(path)
        function = getattr(self._module, "reference", None)
        if not callable(function):
            raise TaskError(f"{self._name}: has no function reference(**kwargs)")
        self._function: Callable[..., object] = function

    def _import(self, path: Path) -> ModuleType:
        spec = importlib.util.spec_from_file_location("roofclimb_reference", path)
        if spec is None or spec.loader is None:
            raise TaskError(f"{path}: is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.path.insert(0, str(path.parent))
        run = spec.loader.exec_module
        self._guarded("cannot be imported", lambda: run(module))
        return module

    def tolerance(self) -> Tolerance:
        """`atol` and `rtol` of the module, 1e-4 and 1e-3 where it has none."""
        return Tolerance(self._number("atol", 1e-4), self._number("rtol", 1e-3))

    def _number(self, name: str, default: float) -> float:
        value = getattr(self._module, name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise TaskError(f"{self._name}: {name} is {value!r}, not a number of 0 or more")
        return float(value)

    def work(self, name: str, case: Case) -> float | None:
        """`flops(**dims)` or `bytes(**dims)`, None where the module has none."""
        function = getattr(self._module, name, None)
        if function is None:
            return None
        value = self._guarded(f"{name}() raised", lambda: function(**case.dims))
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise TaskError(f"{self._name}: {name}() returned {value!r}, not a number of 0 or more")
        return float(value)

    def inputs(self) -> Callable[[int, Mapping[str, int]], Mapping[str, torch.Tensor]] | None:
        """The module's `inputs(seed, **dims)`, or None."""
        function = getattr(self._module, "inputs", None)
        if function is None:
            return None

        def call(seed: int, dims: Mapping[str, int]) -> Mapping[str, torch.Tensor]:
            made = self._guarded("inputs() raised", lambda: function(seed, **dims))
            if not isinstance(made, Mapping):
                raise TaskError(f"{self._name}: inputs() returned {type(made).__name__}, not a dict by name")
            return made

        return call

    def compute(self, case: Case, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Every output of one call: floats in float64, unsigned integers wider than a byte in int64.

        Args:
            case: the shapes and scalars.
            inputs: values of the `in` and `inout` tensors; they are copied.

        Raises:
            TaskError: it raises, or does not deliver each output whole.
        """
        arguments, outputs = self._arguments(case, inputs, own_types=False)
        # A float output shows by its sentinel what was not written; others by being as they were before.
        before = {
            name: arguments[name].clone()
            for name, t in outputs.items()
            if t.role == "inout" or not (t.zeroed or arguments[name].dtype.is_floating_point)
        }
        accepted = self._accepted(arguments)
        returned = self._guarded("raised", lambda: _ended(self._function(**accepted)))
        named = self._by_name(returned, list(outputs))
        result = {}
        for name, tensor in outputs.items():
            if name in named:
                result[name] = self._fitting(tensor, named[name], arguments[name].dtype)
            else:
                result[name] = arguments[name]
                if not tensor.zeroed:  # what it leaves alone there is right
                    self._check_written(tensor, result[name], before.get(name))
        return result

    def time_ms(
        self, case: Case, inputs: Mapping[str, torch.Tensor], threads: int, flush: Callable[[], None]
    ) -> float | None:
        """Median time of a call in the declared types, None where the reference cannot run in them.

        On a GPU the caches are flushed before each call, as for kernels, and the GPU's own clock is read.
        """
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            arguments, _ = self._arguments(case, inputs, own_types=True)
            accepted = self._accepted(arguments)
            if torch.get_default_device().type == "cuda":
                return median([self._cuda_ms(accepted, flush) for _ in range(_GPU_CALLS)][_GPU_WARM:])
            return median([self._host_ms(accepted) for _ in range(4)][1:])
        except TaskError:
            return None
        finally:
            torch.set_num_threads(before)

    def _host_ms(self, accepted: Mapping[str, torch.Tensor]) -> float:
        start = time.perf_counter_ns()
        self._guarded("raised", lambda: self._function(**accepted))
        return (time.perf_counter_ns() - start) / 1e6

    def _cuda_ms(self, accepted: Mapping[str, torch.Tensor], flush: Callable[[], None]) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

        def call() -> None:
            flush()
            torch.cuda._sleep(_HOLD_CYCLES)  # as for kernels: what launching costs the host is not billed
            start.record()
            self._function(**accepted)
            end.record()
            end.synchronize()

        self._guarded("raised", call)
        return float(start.elapsed_time(end))

    def _arguments(
        self, case: Case, inputs: Mapping[str, torch.Tensor], *, own_types: bool
    ) -> tuple[dict[str, torch.Tensor], dict[str, Tensor]]:
        arguments: dict[str, torch.Tensor] = {}
        outputs: dict[str, Tensor] = {}
        for argument in case.arguments:
            if argument.kind == "scalar":
                arguments[argument.name] = argument.value
                continue
            dtype = torch_dtype(argument.dtype)
            wide = dtype if own_types else widened(dtype)
            if argument.zeroed:
                arguments[argument.name] = torch.zeros(argument.shape, dtype=wide)
            elif argument.role == "out":
                arguments[argument.name] = _unwritten(argument.shape, wide)
            else:
                arguments[argument.name] = inputs[argument.name].to(wide, copy=True)
            if argument.role != "in":
                outputs[argument.name] = argument
        return arguments, outputs

    def _accepted(self, arguments: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """The arguments that the function takes: one that names only what it uses is fine."""
        parameters = inspect.signature(self._function).parameters.values()
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
            return arguments
        known = {p.name for p in parameters if p.kind is not inspect.Parameter.VAR_POSITIONAL}
        missing = [p.name for p in parameters if p.default is p.empty and p.name in known and p.name not in arguments]
        if missing:
            raise TaskError(
                f"{self._name}: reference() wants {', '.join(missing)}; the kernel's parameters are "
                f"{', '.join(arguments)}"
            )
        return {name: value for name, value in arguments.items() if name in known}

    def _by_name(self, returned: object, outputs: list[str]) -> Mapping[str, object]:
        if returned is None:
            return {}
        if isinstance(returned, Mapping):
            unknown = [str(name) for name in returned if name not in outputs]
            if unknown:
                raise TaskError(
                    f"{self._name}: reference() returned {', '.join(unknown)}; the outputs are {', '.join(outputs)}"
                )
            return returned
        values = list(returned) if isinstance(returned, tuple | list) else [returned]
        if len(values) != len(outputs):
            raise TaskError(
                f"{self._name}: reference() returned {len(values)} values for {len(outputs)} outputs "
                f"({', '.join(outputs)})"
            )
        return dict(zip(outputs, values, strict=True))

    def _fitting(self, tensor: Tensor, value: object, dtype: torch.dtype) -> torch.Tensor:
        try:
            made = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TaskError(f"{self._name}: reference() returned no array for {tensor.name}: {error}") from error
        if tuple(made.shape) != tensor.shape and not (made.dim() <= 1 and made.numel() == tensor.elements):
            raise TaskError(
                f"{self._name}: reference() returned {tensor.name} with shape {list(made.shape)}, "
                f"the task says {list(tensor.shape)}"
            )
        return made.detach().to(torch.get_default_device(), dtype).reshape(tensor.shape)

    def _check_written(self, tensor: Tensor, value: torch.Tensor, before: torch.Tensor | None) -> None:
        if before is None:
            left = int((value.view(torch.int64) == _SENTINEL).sum()) if value.dtype == torch.float64 else 0
        else:
            bits = before.numel() * (1 if before.dtype == torch.bool else 8 * before.dtype.itemsize)
            left = before.numel() if bits >= _TELLING_BITS and torch.equal(value, before) else 0
        if left == 0:
            return
        if left == tensor.elements:
            raise TaskError(f"{self._name}: reference() neither wrote nor returned {tensor.name}")
        raise TaskError(
            f"{self._name}: reference() left {left} of {tensor.elements} elements of {tensor.name} unwritten"
        )

    def _guarded(self, what: str, run: Callable[[], object]) -> object:
        """Every call into the module goes through here."""
        self._phase("reference", self._limit_s)
        try:
            return run()
        except TaskError:
            raise
        except (Exception, SystemExit) as error:
            lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == self._name]
            where = f" (line {lines[-1]})" if lines else ""
            text = str(error).partition("\n")[0]
            remedy = ": out of memory, use smaller dims" if out_of_memory(error) else ""
            raise TaskError(f"{self._name}: {what}: {type(error).__name__}: {text}{where}{remedy}") from error
        finally:
            self._phase("harness", _OWN_S)


def _ended(returned: object) -> object:
    """What a call returned, once a GPU has done all of it: a fault there comes up here and not in a call of ours."""
    if torch.get_default_device().type == "cuda":
        torch.cuda.synchronize()
    return returned


def widened(dtype: torch.dtype) -> torch.dtype:
    """The type in which a reference sees data of a type."""
    if dtype.is_floating_point:
        return torch.float64
    return torch.int64 if dtype in _NO_MATH else dtype


def _unwritten(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A buffer filled with what no reference writes on purpose."""
    if dtype == torch.float64:
        return torch.full(shape, _SENTINEL, dtype=torch.int64).view(torch.float64)
    if dtype.is_floating_point:
        return torch.zeros(shape, dtype=dtype)
    if dtype in _NO_MATH:  # only when timed, where nothing looks at the filling
        return torch.zeros(shape, dtype=dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 127, shape).to(dtype)
