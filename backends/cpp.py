"""C++ kernels on the host: one `.cpp` with `extern "C" void solve(...)`, built by g++ or clang++, read by objdump."""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from backends import build_cache, diagnostics
from backends.compile_step import Failed, copied, failure, from_cache, included, lies_beside, walls, without_folders
from backends.dependencies import library_refusal
from backends.disassembly import parse_objdump
from backends.host_compiler import (
    Compiler,
    compiler_folders,
    disk_error,
    empty_library,
    find_compiler,
    find_tool,
    run_compiler,
    search_path,
    version_line,
)
from backends.identity import source_hash, tests_switch
from backends.preprocessed import user_text
from backends.process import Completed, run_process
from backends.signature import parse_signature
from backends.types import BuildSpec, Built, Listing, Rejected, Signature, ToolchainError
from backends.walls import Walls

ARTIFACT = "kernel.so"
_X86 = platform.machine().lower() in {"x86_64", "amd64"}
# Fixed rather than `native`, so that a recorded kernel means the same on every machine that can run it.
_TARGET = ("-march=x86-64-v3",) if _X86 else ()
# What tells an x86-64-v3 CPU from older ones, as /proc/cpuinfo spells it.
_NEEDS = ("avx2", "bmi2", "f16c", "fma") if _X86 else ()
# Contraction is what g++ does by default and clang++ does not. Without `no-semantic-interposition`, -fPIC forbids
# inlining any function of the kernel that is not static.
_COMPILE = ("-O3", *_TARGET, "-ffp-contract=fast", "-fPIC", "-fno-semantic-interposition", "-pthread")
_PREPROCESSED = "unit.ii"
_EXPORTS = "exports.map"
# Only `solve` leaves the library, so a kernel cannot put its own malloc or memcpy in front of anyone's.
_EXPORTED = "{ global: solve; local: *; };\n"
_LINK = ("-shared", f"-Wl,--version-script={_EXPORTS}")
# A missing symbol must fail here with its name, not later in dlopen. Sanitizers leave theirs to the program.
_NO_UNDEFINED = "-Wl,-z,defs"
_DISASSEMBLE_LIMIT_S = 60.0
# The listing of a large template-heavy kernel takes 1 MiB.
_LISTING_LIMIT_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class _Unit:
    """A kernel after the preprocessor: its output, and the key of the build that it asks for."""

    text: str
    key: str


class CppBackend:
    """Kernels built by the host's C++ compiler into a shared library."""

    name: str = "cpp"
    suffix: str = ".cpp"
    device: Literal["cpu", "gpu"] = "cpu"
    language: str = "cpp"
    needs_features: tuple[str, ...] = _NEEDS
    compile_line: str = f"g++ {' '.join(_COMPILE)} -shared"

    def toolchain(self) -> Mapping[str, str]:
        """Tool names to version lines: the compiler, and objdump where it is installed.

        Raises:
            ToolchainError: there is no compiler that runs.
        """
        compiler = find_compiler()
        tools = {compiler.name: compiler.version}
        objdump = find_tool("objdump")
        if objdump is not None:
            tools["objdump"] = version_line((str(objdump),))
        return tools

    def signature(self, source: Path, spec: BuildSpec) -> Signature:
        """Parse the one live `solve` as the compiler would see it under `spec`.

        Raises:
            SourceError: the file cannot be read or preprocessed, or its `solve` cannot be bound.
            ToolchainError: there is no compiler that runs.
        """
        compiler = find_compiler()
        try:
            with tempfile.TemporaryDirectory(prefix="roofclimb-") as folder:
                unit = _preprocess(compiler, _copy(source, Path(folder)), source, spec)
        except OSError as error:
            raise disk_error(error, Path(tempfile.gettempdir())) from error
        if isinstance(unit, Failed):
            raise unit.error(source)
        return parse_signature(unit.text, source)

    def build(self, source: Path, spec: BuildSpec, cache: Path) -> Built | Rejected:
        """Compile `source` into `cache/<key>/kernel.so`, or take it from there. Safe in threads and processes.

        Raises:
            SourceError: `source` cannot be read.
            ToolchainError: no compiler that runs, a full disk, or a cache folder that cannot be written.
        """
        compiler = find_compiler()
        try:
            with build_cache.private_folder(cache) as work:
                return _build(compiler, source, spec, cache, work)
        except OSError as error:
            raise disk_error(error, cache) from error

    def disassemble(self, built: Built, *, limit_bytes: int = _LISTING_LIMIT_BYTES) -> Listing | None:
        """The kernel's own functions as machine instructions.

        None where objdump is not installed, and for a kernel that it cannot list: one that crashes it, takes it past
        its time, or whose listing has `limit_bytes` or more. Half a listing would hide what the kernel does.

        Raises:
            ToolchainError: objdump cannot be started, or cannot read an empty library either.
        """
        objdump = find_tool("objdump")
        if objdump is None:
            return None
        done = _objdump(objdump, built.artifact, limit_bytes)
        if done.returncode != 0:
            _blame_objdump(objdump)
            return None
        return parse_objdump(done.stdout) if len(done.stdout.encode()) < limit_bytes else None

    def host_side(self, built: Built) -> Listing | None:
        """There is no other side."""
        return None

    def refusal(self, built: Built, allowed: Sequence[str]) -> str | None:
        """A library that is needed and not allowed, or a call that can bring one in."""
        return library_refusal(built.artifact, allowed)

    def has_switch(self, source: str, switch: str) -> bool:
        """Whether the kernel tests the switch in a preprocessor condition."""
        return tests_switch(source, switch)

    def source_hash(self, source: str) -> str:
        """SHA-256 of the source without comments and layout."""
        return source_hash(source)


def _objdump(program: Path, library: Path, limit_bytes: int) -> Completed:
    try:
        return run_process(
            [str(program), "--disassemble", "--no-show-raw-insn", "--demangle", str(library)],
            timeout_s=_DISASSEMBLE_LIMIT_S,
            env={"LC_ALL": "C", "PATH": search_path()},
            max_output_bytes=limit_bytes,
            walls=Walls(readable=(library,), tools=(program,)),
        )
    except OSError as error:
        raise ToolchainError(f"{program} cannot be run: {error.strerror or error}; reinstall binutils") from error


def _blame_objdump(program: Path) -> None:
    """Raise if a failed run is objdump's fault and not the kernel's: if it fails on an empty library too."""
    compiler = find_compiler()
    try:
        with tempfile.TemporaryDirectory(prefix="roofclimb-") as folder:
            control = _objdump(program, empty_library(compiler, Path(folder)), _LISTING_LIMIT_BYTES)
    except OSError as error:
        raise disk_error(error, Path(tempfile.gettempdir())) from error
    if control.returncode != 0:
        said = (control.stderr.strip().splitlines() or [f"exit {control.returncode}"])[0]
        raise ToolchainError(f"{program} cannot read an empty library: {said}; reinstall binutils")


def _build(compiler: Compiler, source: Path, spec: BuildSpec, cache: Path, work: Path) -> Built | Rejected:
    copy = _copy(source, work)
    unit = _preprocess(compiler, copy, source, spec)
    if isinstance(unit, Failed):
        return unit.rejected()
    found = from_cache(cache, unit.key, ARTIFACT)
    if found is not None:
        return found
    (work / _EXPORTS).write_text(_EXPORTED, encoding="utf-8")
    arguments = _arguments(copy, source, spec, ("-o", ARTIFACT, *_link_flags(spec)))
    done = run_compiler(compiler, arguments, walls(source, spec, work), work=work, timeout_s=spec.timeout_s)
    log = without_folders(done.stderr, work, source)
    failed = failure(done, log, copy.name, f"compiler exceeded {spec.timeout_s:g} s")
    if failed is not None:
        return failed.rejected()
    log = diagnostics.bounded(log)
    command = (*compiler.argv, *arguments)
    artifact = build_cache.store(cache, unit.key, work / ARTIFACT, command, log)
    return Built(artifact, unit.key, command, log, seconds=done.seconds, cached=False)


def _copy(source: Path, work: Path) -> Path:
    return copied(source, work, f"_{source.name}" if source.name.startswith(("-", "@")) else source.name)


def _preprocess(compiler: Compiler, copy: Path, source: Path, spec: BuildSpec) -> _Unit | Failed:
    arguments = _arguments(copy, source, spec, ("-E", "-o", _PREPROCESSED))
    work, inside = copy.parent, walls(source, spec, copy.parent)
    done = run_compiler(compiler, arguments, inside, work=work, timeout_s=spec.timeout_s)
    limit = f"preprocessor exceeded {spec.timeout_s:g} s"
    failed = failure(done, without_folders(done.stderr, copy.parent, source), copy.name, limit)
    if failed is not None:
        return failed
    text = (copy.parent / _PREPROCESSED).read_text(encoding="utf-8", errors="replace")
    seen = inside.with_tools(compiler_folders(compiler.argv))
    headers = included(user_text(text, copy.name).includes, work, seen)
    if isinstance(headers, Failed):
        return headers
    return _Unit(text, _key(compiler, [copy.read_bytes(), *headers], spec))


def _arguments(copy: Path, source: Path, spec: BuildSpec, action: tuple[str, ...]) -> tuple[str, ...]:
    """The compiler's arguments, to be run in the folder of `copy`. Libraries among the flags must follow the source."""
    return (
        f"-std={spec.std}",
        *_COMPILE,
        *action,
        *(("-iquote", str(source.parent.absolute())) if lies_beside(source, spec) else ()),
        *(f"-I{folder}" for folder in spec.include),
        "-x",
        "c++",
        copy.name,
        "-x",
        "none",
        *spec.flags,
        *(f"-D{name}={value}" for name, value in sorted(spec.define.items())),
    )


def _link_flags(spec: BuildSpec) -> tuple[str, ...]:
    sanitized = any(flag.startswith("-fsanitize") for flag in spec.flags)
    return _LINK if sanitized else (*_LINK, _NO_UNDEFINED)


def _key(compiler: Compiler, contents: Sequence[bytes], spec: BuildSpec) -> str:
    """SHA-256 over the bytes that the build reads from the user, how it is asked for, and the compiler's version."""
    digest = hashlib.sha256()
    asked = {
        "compiler": [*compiler.argv, compiler.version],
        "flags": [*_COMPILE, *_link_flags(spec), *spec.flags],
        "exports": _EXPORTED,
        "define": sorted(spec.define.items()),
        "std": spec.std,
        "machine": platform.machine(),
    }
    digest.update(json.dumps(asked, sort_keys=True).encode())
    for content in contents:
        digest.update(f"\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
