"""CUDA kernels: one `.cu` with `extern "C" void solve(...)`, built by nvcc, read by cuobjdump."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from backends import build_cache, diagnostics
from backends.compile_step import Failed, copied, failure, from_cache, included, lies_beside, walls, without_folders
from backends.cpp import CppBackend
from backends.cuda_arch import choose_target, gencode, plain_target, specific_target
from backends.cuda_toolchain import (
    Toolkit,
    escaped,
    find_cuda_tool,
    find_toolkit,
    host_arguments,
    link_folder,
    run_nvcc,
    tool_version,
)
from backends.cutlass_headers import CutlassHeaders, find_cutlass, includes_cutlass
from backends.demangle import demangled_text
from backends.dependencies import CUDA_RUNTIME, library_refusal
from backends.host_compiler import disk_error, search_path
from backends.identity import source_hash, tests_switch
from backends.preprocessed import user_text
from backends.process import Completed, run_process
from backends.ptxas import parse_resources, with_ptx_lines, without_resources
from backends.sass import parse_sass
from backends.signature import parse_signature
from backends.types import BuildSpec, Built, Listing, Rejected, Signature, ToolchainError
from backends.walls import Walls

ARTIFACT = "kernel.so"
_COMPILE = ("-O3", "-lineinfo", "-Xptxas", "-v", "-Xcompiler", "-fPIC")
_PREPROCESSED = "unit.ii"
_SEARCHED = Path("/usr/include")
_EXPORTS = "exports.map"
# Only `solve` leaves the library: a kernel cannot put its own cudaMalloc or memcpy in front of anyone's.
_EXPORTED = "{ global: solve; local: *; };\n"
# The device run-time serves separate compilation alone. A missing symbol must fail here with its name, not in dlopen.
_LINK = ("-shared", "--cudart", "shared", "--cudadevrt", "none")
_LINKER = ("-Xlinker", f"--version-script={_EXPORTS}", "-Xlinker", "-z,defs")
# nvcc hands names to a shell, and reads commas itself: a name with such characters becomes this one.
_SAFE_NAME = re.compile(r'[\w([][^"`$\\,\x00-\x1f]*')
_PLAIN_NAME = "kernel.cu"
_BESIDE = "_beside"
_TOOLKIT = "_toolkit"
_TEMPORARY = re.compile(r"(?<![\w./])tmp/(?:tmpxft_[0-9a-f]+_[0-9a-f]+-\d+_)?")
# What is between the steps stays until the folder goes: an error in PTX can be shown with its line.
_KEEP = ("--keep", "--keep-dir", "tmp")
_ENTERED = re.compile(r'^# 1 "([^"]+)" 1\b', re.MULTILINE)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include(?:_next)?[ \t]*(?:[<"]([^>"\n]+)[>"]|(\w+))', re.MULTILINE)
_DISASSEMBLE_LIMIT_S = 60.0
# The listing of a CUTLASS kernel with many instantiations takes several MiB.
_LISTING_LIMIT_BYTES = 32 << 20
_NAMED_TARGET = re.compile(r"code=(sm_\w+)")


@dataclass(frozen=True, slots=True)
class _Job:
    """One kernel in its private folder, as nvcc is asked for it.

    The folders that it may include from are links beside it, by names of our own: nvcc hands names to a shell, and
    reads commas itself.

    Attributes:
        toolkit: what compiles it.
        source: the kernel as given.
        spec: how the task wants it.
        copy: the kernel in the private folder.
        user: links to the task's include folders.
        cutlass: links to CUTLASS's.
    """

    toolkit: Toolkit
    source: Path
    spec: BuildSpec
    copy: Path
    user: Mapping[str, Path]
    cutlass: Sequence[str]

    @property
    def work(self) -> Path:
        return self.copy.parent

    @property
    def walls(self) -> Walls:
        return walls(self.source, self.spec, self.work, [self.work / name for name in self.cutlass])


@dataclass(frozen=True, slots=True)
class _Unit:
    """A kernel after the preprocessor: its output, the architecture to compile for, and the key of the build."""

    text: str
    target: str
    key: str


class CudaBackend:
    """Kernels built by nvcc into a shared library."""

    name: str = "cuda"
    suffix: str = ".cu"
    device: Literal["cpu", "gpu"] = "gpu"
    language: str = "cuda"
    needs_features: tuple[str, ...] = ()
    compile_line: str = f"nvcc {' '.join(_COMPILE)} -shared --cudart shared"

    def toolchain(self) -> Mapping[str, str]:
        """Tool names to versions: nvcc and its host compiler, and the disassemblers where they are installed.

        Raises:
            ToolchainError: there is no nvcc, or no host compiler, that runs.
        """
        toolkit = find_toolkit()
        tools = {"nvcc": tool_version(toolkit.nvcc), toolkit.host.name: toolkit.host.version}
        for name in ("cuobjdump", "nvdisasm"):
            program = find_cuda_tool(name)
            if program is not None:
                tools[name] = tool_version(program)
        return tools

    def signature(self, source: Path, spec: BuildSpec) -> Signature:
        """Parse the one live `solve` as the host compiler would see it under `spec`.

        Raises:
            SourceError: the file cannot be read or preprocessed, or its `solve` cannot be bound.
            ToolchainError: there is no nvcc that runs.
        """
        try:
            with tempfile.TemporaryDirectory(prefix="roofclimb-") as folder:
                unit = _preprocess(self._job(source, spec, Path(folder)))
        except OSError as error:
            raise disk_error(error, Path(tempfile.gettempdir())) from error
        if isinstance(unit, Failed):
            raise unit.error(source)
        return parse_signature(unit.text, source)

    def build(self, source: Path, spec: BuildSpec, cache: Path) -> Built | Rejected:
        """Compile `source` into `cache/<key>/kernel.so`, or take it from there. Safe in threads and processes.

        Raises:
            SourceError: `source` cannot be read.
            ToolchainError: no nvcc that runs or knows `spec.arch`, a full disk, or a cache that cannot be written.
        """
        try:
            with build_cache.private_folder(cache) as work:
                return _build(self._job(source, spec, work), cache)
        except OSError as error:
            raise disk_error(error, cache) from error

    def disassemble(self, built: Built, *, limit_bytes: int = _LISTING_LIMIT_BYTES) -> Listing | None:
        """The device functions as machine instructions.

        None where cuobjdump is not installed, and for a kernel that it cannot list: one that crashes it, takes it past
        its time, or whose listing has `limit_bytes` or more. Half a listing would hide what the kernel does.

        Raises:
            ToolchainError: cuobjdump cannot be started.
        """
        program = find_cuda_tool("cuobjdump")
        if program is None:
            return None
        done = _cuobjdump(program, built.artifact, limit_bytes)
        if done.returncode != 0 or len(done.stdout.encode()) >= limit_bytes:
            return None
        target = _NAMED_TARGET.search(" ".join(built.command))
        return parse_sass(done.stdout, target[1] if target else "")

    def host_side(self, built: Built) -> Listing | None:
        """The host functions as machine instructions: launch shapes, streams and graphs show there alone.

        Raises:
            ToolchainError: objdump cannot be started.
        """
        return CppBackend().disassemble(built)

    def refusal(self, built: Built, allowed: Sequence[str]) -> str | None:
        """A library that is needed, not allowed and not the CUDA run-time, or a call that can bring one in."""
        return library_refusal(built.artifact, (*allowed, *CUDA_RUNTIME))

    def has_switch(self, source: str, switch: str) -> bool:
        """Whether the kernel tests the switch in a preprocessor condition."""
        return tests_switch(source, switch)

    def source_hash(self, source: str) -> str:
        """SHA-256 of the source without comments and layout."""
        return source_hash(source)

    def _cutlass(self, text: str) -> CutlassHeaders | None:
        """The headers, where the kernel asks for them; a kernel that asks for what is not there does not build."""
        try:
            return find_cutlass() if includes_cutlass(text) else None
        except ToolchainError:
            return None

    def _job(self, source: Path, spec: BuildSpec, work: Path) -> _Job:
        toolkit = find_toolkit()
        copy = copied(source, work, source.name if _SAFE_NAME.fullmatch(source.name) else _PLAIN_NAME)
        headers = self._cutlass(_read(copy))
        user = {f"_include{n}": folder.absolute() for n, folder in enumerate(spec.include)}
        cutlass = {f"_cutlass{n}": folder for n, folder in enumerate(headers.folders if headers else ())}
        for name, folder in {_BESIDE: source.parent.absolute(), **user, **cutlass, _TOOLKIT: toolkit.include}.items():
            (work / name).symlink_to(folder)
        return _Job(toolkit, source, spec, copy, user, tuple(cutlass))


def _cuobjdump(program: Path, library: Path, limit_bytes: int) -> Completed:
    try:
        with tempfile.TemporaryDirectory(prefix="roofclimb-") as private:
            return run_process(
                [str(program), "--dump-sass", str(library)],
                timeout_s=_DISASSEMBLE_LIMIT_S,
                env={
                    "LC_ALL": "C",
                    "PATH": f"{program.parent}:{search_path()}",
                    "TMPDIR": private,
                    "HOME": private,
                },
                max_output_bytes=limit_bytes,
                # It runs nvdisasm, which lies beside it.
                walls=Walls((Path(private),), (library,), (program, program.parent, program.resolve().parent)),
            )
    except OSError as error:
        raise ToolchainError(f"{program} cannot be run: {error.strerror or error}; reinstall it") from error


def _build(job: _Job, cache: Path) -> Built | Rejected:
    unit = _preprocess(job)
    if isinstance(unit, Failed):
        return unit.rejected()
    found = from_cache(cache, unit.key, ARTIFACT)
    if found is not None:
        return found
    (job.work / _EXPORTS).write_text(_EXPORTED, encoding="utf-8")
    action = ("-o", ARTIFACT, *_KEEP, *_LINK, "-L", link_folder(job.toolkit, job.work), *_LINKER)
    arguments = _arguments(job, unit.target, action)
    done = _nvcc(job, arguments, unit.target)
    seconds = done.seconds
    other = specific_target(unit.target, done.stderr) if done.returncode != 0 and not done.timed_out else None
    if other is not None:
        arguments = _arguments(job, other, action)
        done = _nvcc(job, arguments, other)
        seconds += done.seconds
    log = _readable(job, done)
    failed = failure(done, log, job.source.name, f"nvcc exceeded {job.spec.timeout_s:g} s")
    if failed is not None:
        return failed.rejected()
    resources, log = parse_resources(done.stderr), diagnostics.bounded(log)
    command = (str(job.toolkit.nvcc), *host_arguments(job.toolkit.host), *arguments)
    artifact = build_cache.store(cache, unit.key, job.work / ARTIFACT, command, log, resources)
    return Built(artifact, unit.key, command, log, seconds, cached=False, resources=resources)


def _nvcc(job: _Job, arguments: tuple[str, ...], target: str) -> Completed:
    limit = job.spec.timeout_s
    return run_nvcc(job.toolkit, arguments, job.walls, work=job.work, target=gencode(target), timeout_s=limit)


def _preprocess(job: _Job) -> _Unit | Failed:
    """The host's view of the kernel, without a macro that says "device", and the key of its build."""
    own = job.copy.read_text(encoding="utf-8", errors="replace")
    plain = plain_target(choose_target(job.spec.arch, own))
    text = _preprocessed(job, plain, "-Xcompiler=-U__CUDA_ARCH__")
    if isinstance(text, Failed):
        return text
    includes = user_text(text, job.copy.name).includes
    inside = job.walls.with_tools(job.toolkit.folders)
    headers = included(includes, job.work, inside)
    if isinstance(headers, Failed):
        return headers
    sources = [own, *(header.decode(errors="replace") for header in headers)]
    target = choose_target(job.spec.arch, "\n".join(sources))
    entered = [*_ENTERED.findall(text)]
    if _has_more_includes(sources, entered):
        device = _preprocessed(job, target)
        if isinstance(device, Failed):
            return device
        includes = tuple(dict.fromkeys((*includes, *user_text(device, job.copy.name).includes)))
        entered += _ENTERED.findall(device)
        headers = included(includes, job.work, inside)
        if isinstance(headers, Failed):
            return headers
    return _Unit(text, target, _key(job, target, headers, entered))


def _preprocessed(job: _Job, target: str, *more: str) -> str | Failed:
    # nvcc names its own headers like a user's.
    system = () if job.toolkit.include == _SEARCHED else ("-isystem", _TOOLKIT)
    arguments = _arguments(job, target, ("-E", "-o", _PREPROCESSED, *system, *more))
    done = _nvcc(job, arguments, target)
    failed = failure(done, _readable(job, done), job.source.name, f"preprocessor exceeded {job.spec.timeout_s:g} s")
    return failed or _read(job.work / _PREPROCESSED)


def _has_more_includes(sources: Sequence[str], entered: Sequence[str]) -> bool:
    """Whether the user's files include what the host's pass did not enter: the device's may."""
    seen = {"/" + name for name in entered}
    names = [match.groups() for source in sources for match in _INCLUDE.finditer(source)]
    return any(computed or not any(file.endswith("/" + name) for file in seen) for name, computed in names)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _arguments(job: _Job, target: str, action: tuple[str, ...]) -> tuple[str, ...]:
    """nvcc's arguments, to be run in the folder of the copy. Libraries among the flags must follow the source."""
    spec = job.spec
    return (
        f"-std={spec.std}",
        *_COMPILE,
        gencode(target),
        *action,
        *((f"-Xcompiler=-iquote,{_BESIDE}",) if lies_beside(job.source, spec) else ()),
        *(f"-I{name}" for name in job.user),
        *(word for name in job.cutlass for word in ("-isystem", name)),
        "-x",
        "cu",
        job.copy.name,
        *spec.flags,
        *(f"-D{name}={escaped(value)}" for name, value in sorted(spec.define.items())),
    )


def _readable(job: _Job, done: Completed) -> str:
    """What nvcc said, less the resources, with the kernel's names for files and functions."""
    log = _TEMPORARY.sub("", demangled_text(with_ptx_lines(without_resources(done.stderr), job.work)))
    names = {f"{link}/": f"{folder}/" for link, folder in job.user.items()}
    names |= {f"{link}/": "" for link in (_BESIDE, _TOOLKIT, *job.cutlass)}
    log = without_folders(diagnostics.shorten_paths(log, names), job.work, job.source)
    return log if job.copy.name == job.source.name else log.replace(job.copy.name, job.source.name)


def _key(job: _Job, target: str, headers: Sequence[bytes], entered: Sequence[str]) -> str:
    """SHA-256 over the bytes that the build reads from the user, how it is asked for, and the tools' versions.

    A header of CUTLASS stands for itself by size and time of change: a checkout can be edited, and reading hundreds of
    files would take longer than asking for their state.
    """
    digest = hashlib.sha256()
    toolkit, spec = job.toolkit, job.spec
    system = {name for name in entered if name.startswith(tuple(f"{link}/" for link in job.cutlass))}
    asked = {
        "compiler": [toolkit.version, *toolkit.host.argv, toolkit.host.version],
        "flags": [*_COMPILE, *_LINK, *_LINKER, *spec.flags],
        "exports": _EXPORTED,
        "define": sorted(spec.define.items()),
        "std": spec.std,
        "target": target,
        "machine": platform.machine(),
        "headers": [(name, *_state(job.work / name)) for name in sorted(system)],
    }
    digest.update(json.dumps(asked, sort_keys=True).encode())
    for content in (job.copy.read_bytes(), *headers):
        digest.update(f"\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _state(header: Path) -> tuple[int, int]:
    """Size and time of change; of what is not there, whose name the kernel made up, none."""
    try:
        found = header.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns
