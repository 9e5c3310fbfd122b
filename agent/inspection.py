"""Commands that only look: what would be bound, what a run came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from agent.artefacts import plain
from agent.config import whole_dims
from agent.errors import ConfigError
from agent.faults import as_exit_codes
from agent.journal import read_events
from agent.lab import existing
from agent.report.build import write_reports
from agent.report.view import headline
from agent.state import State
from agent.state_fold import fold
from backends.registry import detect, get_backend
from backends.scalar_types import STREAM
from backends.triton import TritonBackend
from backends.types import BuildSpec, Parameter


def inspect_kernel(kernel: Path, dims: Sequence[str] = ()) -> tuple[Mapping[str, Any], str]:
    """Backend and parameters of a kernel file; `dims` (`NAME=VALUE`) are those of a Triton kernel's `setup`.

    Raises:
        ConfigError: no such file, no live `solve`, or a parameter that cannot be bound.
        UnfitEnvironment: the backend's compiler is missing.
    """
    existing(kernel)
    with as_exit_codes():
        name = detect(kernel)
        backend, spec = get_backend(name), BuildSpec(include=(kernel.parent.absolute(),))
        if isinstance(backend, TritonBackend):
            sizes = whole_dims(dims)
            spec = replace(spec, arguments=backend.describe(kernel, sizes, spec.timeout_s))
        elif dims:
            raise ConfigError("inspect: --dim is for the `setup` of Triton kernels")
        signature = backend.signature(kernel, spec)
    parameters = [
        {"name": p.name, "type": p.type, "dtype": p.dtype, "pointer": p.pointer, "role": role_of(p)}
        for p in signature.parameters
    ]
    table = Table("name", "type", "dtype", "role")
    for p in signature.parameters:
        table.add_row(p.name, p.type, _dtype_shown(p), role_of(p))
    title = f"{kernel}: {name}" if name == "triton" else f"{kernel}: {name}, returns {signature.returns}"
    return {"backend": name, "returns": signature.returns, "parameters": parameters}, f"{title}\n{draw(table)}"


def _dtype_shown(parameter: Parameter) -> str:
    if parameter.type == STREAM:
        return ""
    return "by task.tensors" if parameter.pointer and parameter.dtype == "void" else parameter.dtype


def role_of(parameter: Parameter) -> str:
    """The role before a task says otherwise: const pointers are inputs, others outputs, values are scalars."""
    if not parameter.pointer:
        return "default stream" if parameter.type == STREAM else "scalar"
    return "in" if parameter.const else "out"


def report_run(run_dir: Path) -> tuple[Mapping[str, Any], str]:
    """Write a run's reports anew.

    Raises:
        ConfigError: not a run folder, or a damaged log.
    """
    state = fold(read_events(run_dir / "events.jsonl")[0])
    write_reports(run_dir)
    files = [str(run_dir / name) for name in ("summary.md", "report.html")]
    return {"state": plain(state), "files": files}, "\n".join(files)


def finished(state: State, run_dir: Path) -> tuple[Mapping[str, Any], str]:
    """What a run ends with on stdout: the speedup, or why there is none to claim."""
    if state.speedup is None or state.speedup_interval is None:
        why, _ = headline(state, read_events(run_dir / "events.jsonl")[0])
        return plain(state), f"{state.run_id}: {state.status} ({state.stop_reason}). {why}"
    low, high = state.speedup_interval
    line = f"{state.run_id}: {state.status} ({state.stop_reason}), {state.speedup:.2f}x [{low:.2f}, {high:.2f}]"
    return plain(state), f"{line} over the baseline, best from {state.best_from}"


def draw(table: Table) -> str:
    """A table as plain text."""
    console = Console(width=100, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip()
