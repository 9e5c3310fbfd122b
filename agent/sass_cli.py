"""`sass`: a kernel's machine code, and which methods it shows against another kernel. Needs no GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from agent.artefacts import plain
from agent.config import parse_assignments
from agent.errors import ConfigError, UnfitEnvironment
from agent.faults import as_exit_codes
from agent.inspection import draw
from agent.paths import cache_folder
from backends.registry import detect, get_backend
from backends.triton import TritonBackend
from backends.types import Argument, Backend, BuildSpec, Built, Listing
from profiling.sass_report import SassReport, sass_report
from profiling.types import MethodPresence
from prompts.catalogue import load_catalogue

_DESCRIBE_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class _Kernel:
    built: Built
    listing: Listing


def sass(
    kernel: Path, against: Path | None, arch: str | None, methods: Sequence[str], dims: Sequence[str] = ()
) -> tuple[Mapping[str, Any], str]:
    """Build a kernel and show its machine code.

    Args:
        kernel: the file.
        against: the kernel that it grew from; then the methods are looked for.
        arch: GPU architecture to build for, such as `sm_90`; None leaves it to the backend.
        methods: catalogue ids; all that fit the backend and architecture where none are named.
        dims: `NAME=VALUE`, for a Triton kernel's `setup`.

    Raises:
        ConfigError: no such file or method, a kernel that does not build, or two that cannot be compared.
        UnfitEnvironment: a compiler or disassembler is missing.
    """
    for path in (kernel, *([against] if against else [])):
        if not path.is_file():
            raise ConfigError(f"{path}: no such file")
    if methods and against is None:
        raise ConfigError("sass: methods are found in what changed; name the kernel before with --against")
    with as_exit_codes():
        name = detect(kernel)
        backend = get_backend(name)
        asked = [_known(method, name) for method in methods]
        sizes = {k: int(v) for k, v in parse_assignments(dims, "--dim").items()}
        after, before = _both(backend, kernel, against, arch or "", sizes)
    wanted = asked or [m.id for m in load_catalogue().select(name, after.listing.arch) if m.signature == "opcodes"]
    report = sass_report(
        after.listing,
        None if before is None else before.listing,
        resources=after.built.resources,
        resources_before=() if before is None else before.built.resources,
        methods=wanted,
    )
    return {"kernel": str(kernel), "backend": name, **plain(report)}, _text(kernel, against, report, bool(asked))


def _known(method: str, backend: str) -> str:
    catalogue = load_catalogue()
    if not catalogue.known(method, backend):
        raise ConfigError(f"no method `{method}` for {backend}; the nearest is `{catalogue.nearest(method)}`")
    return method


def _both(
    backend: Backend, kernel: Path, against: Path | None, arch: str, dims: Mapping[str, int]
) -> tuple[_Kernel, _Kernel | None]:
    """Both kernels for one architecture: the newer of what they ask for, where none is named."""
    after = _build(backend, kernel, arch, dims)
    if against is None:
        return after, None
    if detect(against) != backend.name and not {detect(against), backend.name} <= {"cuda", "cutlass"}:
        raise ConfigError(
            f"{against} is a {detect(against)} kernel, {kernel} a {backend.name} kernel; compare like kinds"
        )
    own = get_backend(detect(against))
    before = _build(own, against, arch, dims)
    numbers = [_capability(k.listing.arch) for k in (after, before)]
    if numbers[0] > numbers[1]:
        before = _build(own, against, f"sm_{numbers[0]}", dims)
    elif numbers[1] > numbers[0]:
        after = _build(backend, kernel, f"sm_{numbers[1]}", dims)
    return after, before


def _capability(arch: str) -> int:
    found = re.fullmatch(r"sm_(\d+)[a-z]?", arch)
    return int(found[1]) if found else 0


def _build(backend: Backend, kernel: Path, arch: str, dims: Mapping[str, int]) -> _Kernel:
    arguments: tuple[Argument, ...] = ()
    if isinstance(backend, TritonBackend):
        arguments = backend.describe(kernel, dims, _DESCRIBE_LIMIT_S)
    spec = BuildSpec(include=(kernel.parent.absolute(),), arch=arch, arguments=arguments)
    built = backend.build(kernel, spec, cache_folder() / "builds")
    if not isinstance(built, Built):
        raise ConfigError(f"{kernel}: {built.reason}" + (f"\n{built.evidence}" if built.evidence else ""))
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
