"""`sass`: a kernel's machine code, and which methods it shows against another kernel. Needs no GPU.

C++ kernels show the host's instructions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from agent.artefacts import plain
from agent.config import Config, whole_dims
from agent.errors import ConfigError, UnfitEnvironment
from agent.faults import as_exit_codes
from agent.inspection import draw
from agent.lab import backend_name, existing
from agent.machine import here
from agent.paths import cache_folder
from agent.task import build_spec
from backends.registry import detect, get_backend
from backends.triton import TritonBackend
from backends.types import Backend, BuildSpec, Built, Listing
from profiling.findings import MethodPresence
from profiling.sass_report import SassReport, sass_report
from prompts.catalogue import load_catalogue

_DESCRIBE_LIMIT_S = 120.0
_ARCH = re.compile(r"sm_(\d{2,3})[a-z]?")


@dataclass(frozen=True, slots=True)
class _Kernel:
    built: Built
    listing: Listing


@dataclass(frozen=True, slots=True)
class _Way:
    """How kernels are built: the backend's name, the architecture (empty: its choice), a task's spec, Triton's dims."""

    backend: str
    arch: str
    spec: BuildSpec | None
    dims: Mapping[str, int]


def sass(
    kernel: Path,
    against: Path | None,
    arch: str | None,
    methods: Sequence[str],
    dims: Sequence[str] = (),
    *,
    listing: bool = False,
) -> tuple[Mapping[str, Any], str]:
    """Build a kernel and show its machine code.

    Args:
        kernel: the file.
        against: the kernel that it grew from; then the methods are looked for.
        arch: GPU architecture to build for, such as `sm_90`; None leaves it to the backend.
        methods: catalogue ids; all that fit the backend and architecture where none are named.
        dims: `NAME=VALUE`, for a Triton kernel's `setup`.
        listing: with the disassembly itself.

    Raises:
        ConfigError: no such file or method, a kernel that does not build, or two that cannot be compared.
        UnfitEnvironment: a compiler or disassembler is missing.
    """
    existing(kernel)
    with as_exit_codes():
        name = detect(kernel)
    if dims and name != "triton":
        raise ConfigError("sass: --dim is for the `setup` of Triton kernels; others are built without dims")
    return _sass(kernel, against, methods, _Way(name, arch or "", None, whole_dims(dims)), listing)


def sass_of_task(
    config: Config,
    candidate: Path | None,
    against: Path | None,
    arch: str | None,
    methods: Sequence[str],
    *,
    listing: bool = False,
) -> tuple[Mapping[str, Any], str]:
    """The same with a task's flags, macros and dims: of its baseline, or of another kernel against that.

    Args:
        config: the task's.
        candidate: the kernel; None for the baseline.
        against: another kernel than the baseline to look at `candidate` against.
        arch, methods, listing: as for `sass`.

    Raises:
        ConfigError, UnfitEnvironment: as `sass`.
    """
    section = config.task
    asked = arch or ("" if config.device.arch == "auto" else config.device.arch)
    way = _Way(backend_name(config), asked, build_spec(section), section.dims)
    kernel = section.baseline if candidate is None else existing(candidate)
    before = against if against is not None or candidate is None else section.baseline
    return _sass(kernel, before, methods, way, listing)


def _sass(
    kernel: Path, against: Path | None, methods: Sequence[str], way: _Way, listing: bool
) -> tuple[Mapping[str, Any], str]:
    if against is not None:
        existing(against)
    elif methods:
        raise ConfigError("sass: methods are found in what changed; name the kernel before with --against")
    with as_exit_codes():
        backend = get_backend(way.backend)
        way = replace(way, arch=_arch(backend, way.arch))
        asked = [_known(method, way.backend) for method in methods]
        after, before = _both(backend, kernel, against, way)
    wanted = asked or [
        m.id for m in load_catalogue().select(way.backend, after.listing.arch) if m.signature == "opcodes"
    ]
    report = sass_report(
        after.listing,
        None if before is None else before.listing,
        resources=after.built.resources,
        resources_before=() if before is None else before.built.resources,
        methods=wanted,
    )
    data = {"kernel": str(kernel), "backend": way.backend, **plain(report)}
    text = _text(kernel, against, report, bool(asked))
    if not listing:
        return data, text
    return {**data, "listing": after.listing.text}, f"{after.listing.text.rstrip()}\n\n{text}"


def _arch(backend: Backend, asked: str) -> str:
    """What to build for; empty where the backend chooses. Triton cannot choose: it gets the GPU that is here."""
    if asked and backend.device == "cpu":
        raise ConfigError(f"sass: --arch {asked}: {backend.name} kernels are built for this host; leave it out")
    if asked and not _ARCH.fullmatch(asked):
        raise ConfigError(f"sass: --arch {asked}: is no architecture; write it as sm_90")
    if asked or backend.name != "triton":
        return asked
    gpu = here().gpu
    if gpu is None:
        raise ConfigError("sass: no GPU is here to build a Triton kernel for; name one with --arch, such as sm_90")
    return gpu.arch


def _known(method: str, backend: str) -> str:
    catalogue = load_catalogue()
    if not catalogue.known(method, backend):
        raise ConfigError(f"no method `{method}` for {backend}; the nearest is `{catalogue.nearest(method)}`")
    return method


def _both(backend: Backend, kernel: Path, against: Path | None, way: _Way) -> tuple[_Kernel, _Kernel | None]:
    """Both kernels for one architecture: the newer of what they ask for, where none is named."""
    after = _build(backend, kernel, way)
    if against is None:
        return after, None
    if detect(against) != way.backend and not {detect(against), way.backend} <= {"cuda", "cutlass"}:
        raise ConfigError(
            f"{against} is a {detect(against)} kernel, {kernel} a {way.backend} kernel; compare like kinds"
        )
    own = get_backend(detect(against))
    before = _build(own, against, way)
    numbers = [_capability(k.listing.arch) for k in (after, before)]
    newer = replace(way, arch=f"sm_{max(numbers)}")
    if numbers[0] > numbers[1]:
        before = _build(own, against, newer)
    elif numbers[1] > numbers[0]:
        after = _build(backend, kernel, newer)
    return after, before


def _capability(arch: str) -> int:
    found = _ARCH.fullmatch(arch)
    return int(found[1]) if found else 0


def _build(backend: Backend, kernel: Path, way: _Way) -> _Kernel:
    spec = replace(way.spec or BuildSpec(include=(kernel.parent.absolute(),)), arch=way.arch)
    if isinstance(backend, TritonBackend):
        spec = replace(spec, arguments=backend.describe(kernel, way.dims, _DESCRIBE_LIMIT_S))
    built = backend.build(kernel, spec, cache_folder() / "builds")
    if not isinstance(built, Built):
        detail = built.evidence.removeprefix(built.reason).strip("\n")
        raise ConfigError(f"{kernel}: does not build: {built.reason}" + (f"\n{detail}" if detail else ""))
    listing = backend.disassemble(built)
    if listing is None:
        tool = "cuobjdump or nvdisasm" if backend.device == "gpu" else "objdump"
        raise UnfitEnvironment(f"{kernel}: it cannot be disassembled; install {tool}")
    return _Kernel(built, listing)


def _text(kernel: Path, against: Path | None, report: SassReport, asked: bool) -> str:
    parts = [_functions(kernel, report), _numbers(report, against)]
    if against is not None:
        if report.same_code:
            parts.append(f"The same instructions as {against}.")
        parts += _presence(report.presence, asked)
    return "\n\n".join(parts)


def _functions(kernel: Path, report: SassReport) -> str:
    table = Table("function", "instructions", "in loops")
    for size in report.functions:
        table.add_row(size.name, str(size.instructions), str(size.in_loops))
    return f"{kernel}, built for {report.arch}\n{draw(table)}"


def _numbers(report: SassReport, against: Path | None) -> str:
    table = Table("", "this kernel") if against is None else Table("", against.name, "this kernel")
    for name, change in (*report.resources.items(), *report.mix.items()):
        before, after = ("", change) if isinstance(change, str) else map(_number, (change.before, change.after))
        table.add_row(name.replace("_", " "), *((after,) if against is None else (before, after)))
    return draw(table)


def _number(value: int | None) -> str:
    return "–" if value is None else str(value)


def _presence(presence: Sequence[MethodPresence], asked: bool) -> list[str]:
    shown = [p for p in presence if asked or p.verdict == "verified"]
    lines = []
    for found in shown:
        lines.append(f"{found.method}: {found.verdict}: {found.reason}")
        lines += [f"    {line}" for line in found.lines]
    left = [p.method for p in presence if p not in shown]
    if left:
        lines.append(f"not seen: {', '.join(left)}")
    return ["\n".join(lines)] if lines else []
