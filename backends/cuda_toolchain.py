"""The CUDA toolkit: where nvcc, the disassemblers and the run-time are, and one bounded way to run nvcc."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from backends.host_compiler import (
    Compiler,
    compiler_folders,
    disk_error,
    find_compiler,
    raise_if_full,
    run_limited,
    search_path,
    version_line,
)
from backends.process import Completed, run_process
from backends.types import ToolchainError
from backends.walls import Walls

_INSTALL = (
    "install the CUDA toolkit (12.8 or newer), or `pip install roofclimb[cuda]`, or point CUDACXX at an nvcc by its "
    "full path"
)
# CUTLASS's Hopper GEMM with one tile takes 1.8 GiB, and kernels with many tiles several times that: 16 GiB lets them
# through and stops a template that instantiates itself without end.
_MEMORY_LIMIT_BYTES = 16 << 30
_TOP = re.compile(r"^#\$ TOP=(.+?)\s*$", re.MULTILINE)
_INCLUDES = re.compile(r'"-I(.+?)"')
_RELEASE = re.compile(r"release [\d.]+, V([\d.]+)")
_LIBRARY_FOLDERS = (
    *("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"),
    *("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"),  # as distributions package it
)
_UNSAFE = re.compile(r'["`$\\]')
# What a broken toolkit, host compiler or disk says, or a kernel that quotes it.
_SUSPECT = re.compile(
    r"cannot execute|installation problem|posix_spawn|No such file|No space left|quota exceeded|cannot find|not found|"
    r"shared librar|unsupported (?:GNU|clang|Microsoft)|[Uu]nsupported gpu architecture|is not defined for option|"
    r"host compiler|Could not open|Permission denied|Cannot find|libdevice|died due to signal"
)
_CONTROL_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Toolkit:
    """A working nvcc.

    Attributes:
        nvcc: absolute path.
        version: such as `13.0.88`.
        host: the C++ compiler that it drives.
        root: the folder of all its parts.
        include: the folder of cuda_runtime.h.
        libraries: folders with the run-time's libraries.
    """

    nvcc: Path
    version: str
    host: Compiler
    root: Path
    include: Path
    libraries: tuple[Path, ...]

    @property
    def folders(self) -> tuple[Path, ...]:
        """What it must read to work, its host compiler's folders included."""
        return (self.nvcc, self.root, self.include, *self.libraries, *compiler_folders(self.host.argv))


def find_toolkit() -> Toolkit:
    """$CUDACXX where it is set, else the first of $CUDA_HOME, $CUDA_PATH, PATH, /usr/local and this Python's packages.

    Raises:
        ToolchainError: none is there, or it does not run, or there is no host compiler. Says what to install.
    """
    given = os.environ.get("CUDACXX", "").strip()
    if given:
        found = shutil.which(given, path=search_path())
        if found is None:
            raise ToolchainError(f"the compiler in CUDACXX, `{given}`, was not found; {_INSTALL}")
        return _probe(Path(os.path.abspath(found)), _host())
    for folder in _tool_folders():
        if os.access(folder / "nvcc", os.X_OK):
            return _probe(folder / "nvcc", _host())
    raise ToolchainError(f"no CUDA compiler (nvcc) found; {_INSTALL}")


def find_cuda_tool(name: str) -> Path | None:
    """Absolute path of cuobjdump or nvdisasm, looked for like nvcc and then in Triton's package, or None."""
    given = os.environ.get("CUDACXX", "").strip()
    folders = [Path(os.path.abspath(given)).parent] if "/" in given else []
    packages = [Path(folder) / "backends/nvidia/bin" for folder in _package_folders("triton")]
    for folder in (*folders, *_tool_folders(), *packages):
        if os.access(folder / name, os.X_OK):
            return folder / name
    return None


def find_cudart() -> Path | None:
    """Absolute path of the run-time library that a built kernel needs, `libcudart.so.N`, or None without a toolkit."""
    try:
        return _cudart(find_toolkit())
    except ToolchainError:
        return None


def tool_version(program: Path) -> str:
    """Name and release of one of the toolkit's programs, such as `cuobjdump 13.0.85`.

    Raises:
        ToolchainError: it does not run.
    """
    return f"{program.name} {_release(program)}"


def run_nvcc(
    toolkit: Toolkit, arguments: Sequence[str], walls: Walls, *, work: Path, target: str, timeout_s: float
) -> Completed:
    """Run nvcc in `work`, confined, with limits on time, memory (16 GiB a process) and each file's size (256 MiB).

    Args:
        toolkit: what to run.
        arguments: nvcc's, less the host compiler.
        walls: what it may open beside the toolkit.
        work: a private folder.
        target: nvcc's flag for the architecture, to tell an nvcc that does not know it from a kernel that is wrong.
        timeout_s: wall limit.

    Raises:
        ToolchainError: nvcc cannot build an empty kernel either, or the disk is full.
    """
    if _UNSAFE.search(str(work)):
        raise ToolchainError(f"nvcc cannot work in a folder of that name: {work}; set another output folder")
    try:
        done = _run(toolkit, arguments, walls, work, timeout_s)
        if done.returncode != 0 and not done.timed_out:
            _blame_environment(toolkit, done, work, target)
    except OSError as error:
        raise disk_error(error, work) from error
    return done


def host_arguments(host: Compiler) -> tuple[str, ...]:
    """nvcc's arguments for the host compiler and what CXX gives it."""
    return ("-ccbin", host.argv[0], *(f"-Xcompiler={escaped(word)}" for word in host.argv[1:]))


def escaped(value: str) -> str:
    """A value as nvcc must be given it: it reads backslashes and commas itself, and a shell reads it after that."""
    return re.sub(r"([\\,])", r"\\\1", re.sub(r"([\\$`])", r"\\\1", value))


def link_folder(toolkit: Toolkit, work: Path) -> str:
    """A folder in `work`, by relative name, from which the linker takes the toolkit's run-time.

    The packages on PyPI ship `libcudart.so.N` without the plain name that a linker looks for.

    Raises:
        ToolchainError: the toolkit has no run-time library.
        OSError: `work` cannot be written.
    """
    library = _cudart(toolkit)
    if library is None:
        raise ToolchainError(f"{toolkit.nvcc} has no libcudart.so beside it; {_INSTALL}")
    folder = work / "cudart"
    folder.mkdir(exist_ok=True)
    (folder / "libcudart.so").symlink_to(library)
    return folder.name


def _run(toolkit: Toolkit, arguments: Sequence[str], walls: Walls, work: Path, timeout_s: float) -> Completed:
    argv = (str(toolkit.nvcc), *host_arguments(toolkit.host), *arguments)
    inside = walls.with_tools(toolkit.folders)
    return run_limited(argv, inside, work=work, timeout_s=timeout_s, memory_bytes=_MEMORY_LIMIT_BYTES)


def _blame_environment(toolkit: Toolkit, done: Completed, work: Path, target: str) -> None:
    """Raise if a failed run is the environment's fault: the words raise the question, an empty kernel answers it."""
    if done.returncode not in (126, 127) and not _SUSPECT.search(done.stderr):
        return
    raise_if_full(work)
    (work / "tmp" / "empty.cu").write_text("", encoding="utf-8")
    arguments = (target, "-shared", "-Xcompiler", "-fPIC", "--cudart", "none", "-o", "tmp/empty.so", "tmp/empty.cu")
    control = _run(toolkit, arguments, Walls((work,)), work, _CONTROL_LIMIT_S)
    if control.returncode == 0:
        return
    lines = [line for line in control.stderr.splitlines() if line.strip()] or [f"exit {control.returncode}"]
    said = next((line for line in lines if "error" in line or "fatal" in line), lines[0]).strip()
    remedy = _INSTALL
    if "architecture" in said or "is not defined for option" in said:
        remedy = "use a CUDA toolkit that knows it, or another architecture in device.arch"
    elif "unsupported" in said or "host compiler" in said or "cc1plus" in said:
        remedy = "point NVCC_CCBIN at a C++ compiler that this toolkit supports"
    raise ToolchainError(f"{toolkit.nvcc} ({toolkit.version}) cannot build an empty kernel: {said}; {remedy}")


def _host() -> Compiler:
    """$NVCC_CCBIN, as nvcc itself reads it, else the host's C++ compiler."""
    given = os.environ.get("NVCC_CCBIN", "").strip()
    if not given:
        return find_compiler()
    program = shutil.which(given, path=search_path())
    if program is None:
        raise ToolchainError(f"the compiler in NVCC_CCBIN, `{given}`, was not found; unset it or point it at a g++")
    path = os.path.abspath(program)
    return Compiler((path,), version_line((path,)))


def _tool_folders() -> Iterator[Path]:
    """Folders that may hold nvcc and its kin, absolute, in the order of preference."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        root = os.environ.get(variable, "").strip()
        if root:
            yield Path(os.path.abspath(root)) / "bin"
    yield from (Path(os.path.abspath(folder)) for folder in search_path().split(os.pathsep) if folder)
    yield Path("/usr/local/cuda/bin")
    yield from sorted(Path("/usr/local").glob("cuda-*/bin"), key=_numbers, reverse=True)
    yield from (Path("/opt/cuda/bin"), Path("/usr/lib/nvidia-cuda-toolkit/bin"))
    for folder in _package_folders("nvidia"):
        yield from sorted(Path(folder).glob("cu[0-9]*/bin"), key=_numbers, reverse=True)


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.parent.name)]


def _package_folders(name: str) -> Sequence[str]:
    """Where a package of this Python lies; it is not imported."""
    found = importlib.util.find_spec(name)
    return list(found.submodule_search_locations or ()) if found is not None else ()


@functools.lru_cache(maxsize=8)
def _probe(nvcc: Path, host: Compiler) -> Toolkit:
    version = _release(nvcc)
    # nvcc may be a script that calls another: only it knows where its headers are.
    argv = [str(nvcc), *host_arguments(host), "--dryrun", "-E", "-x", "cu", "unit.cu"]
    with tempfile.TemporaryDirectory(prefix="roofclimb-") as folder:
        env = {"LC_ALL": "C", "PATH": search_path(), "TMPDIR": folder}
        said = run_process(argv, timeout_s=20.0, cwd=Path(folder), env=env).stderr
    top = _TOP.search(said)
    if top is None:
        line = next((line for line in said.splitlines() if line.strip()), "no output")
        raise ToolchainError(f"{nvcc} does not work with {host.argv[0]}: {line}; {_INSTALL}")
    root = Path(os.path.abspath(top[1]))
    includes = [Path(os.path.abspath(folder)) for folder in _INCLUDES.findall(said)]
    include = next((f for f in (*includes, root / "include") if (f / "cuda_runtime.h").is_file()), Path("/usr/include"))
    folders = tuple(root / name for name in _LIBRARY_FOLDERS)
    return Toolkit(nvcc, version, host, root, include, tuple(f for f in folders if f.is_dir()))


@functools.lru_cache(maxsize=16)
def _release(program: Path) -> str:
    argv = [str(program), "--version"]
    try:
        done = run_process(argv, timeout_s=20.0, env={"LC_ALL": "C", "PATH": search_path()})
    except OSError as error:
        raise ToolchainError(f"{program} cannot be run: {error.strerror or error}; {_INSTALL}") from error
    match = _RELEASE.search(done.stdout)
    if done.returncode != 0 or match is None:
        said = next((line for line in (done.stderr + done.stdout).splitlines() if line.strip()), "nothing")
        raise ToolchainError(f"{program} --version failed (exit {done.returncode}): {said}; {_INSTALL}")
    return match[1]


def _cudart(toolkit: Toolkit) -> Path | None:
    for folder in toolkit.libraries:
        versioned = sorted(folder.glob("libcudart.so.[0-9]*"), key=lambda path: len(path.name))
        if versioned:
            return versioned[0]
    return None
