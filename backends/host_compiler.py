"""The host's C++ compiler and binutils: where they are, what version, and one bounded way to run them."""

from __future__ import annotations

import errno
import functools
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backends.process import Completed, run_process
from backends.types import ToolchainError
from backends.walls import Walls

_FALLBACK_PATH = "/usr/local/bin:/usr/bin:/bin"
_INSTALL = "install g++ (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++) or point CXX at a C++ compiler"
FILE_LIMIT_BYTES = 256 << 20
_MEMORY_LIMIT_BYTES = 4 << 30
# A compiler that writes or allocates without end must not take the machine with it. `ulimit -f` counts 512-byte blocks,
# `-v` KiB; both are inherited by cc1plus, as and ld, which a limit set on the driver alone would miss. Where a lower
# limit is in force already it cannot be raised, and stays.
_LIMITED = f'ulimit -f {FILE_LIMIT_BYTES // 512} 2>/dev/null; ulimit -v "$1" 2>/dev/null; shift; exec "$@"'
TOO_LARGE = f"the build wrote a file of more than {FILE_LIMIT_BYTES >> 20} MiB"
_SUSPECT = re.compile(
    r"cannot execute|installation problem|posix_spawn|No such file|No space left|quota exceeded|cannot find|"
    r"shared librar"
)
_LITTLE_SPACE_BYTES = 32 << 20
_CONTROL_LIMIT_S = 30.0
_FOLDER = re.compile(r"(?<![\w.$/-])/[^\s:;\"'=]+")
_NO_FOLDERS = ("Configured with:", "ignoring ", "Target:", "Reading specs")


@dataclass(frozen=True, slots=True)
class Compiler:
    """A working compiler: the absolute program (with its fixed arguments) and the first line of `--version`."""

    argv: tuple[str, ...]
    version: str

    @property
    def name(self) -> str:
        """The program's file name, such as `g++`."""
        return Path(self.argv[0]).name


def search_path() -> str:
    """PATH with the usual folders behind it: cron's PATH may be empty, and g++ looks for `as` and `ld` there."""
    return os.pathsep.join(filter(None, (os.environ.get("PATH", ""), _FALLBACK_PATH)))


def find_compiler() -> Compiler:
    """$CXX where it is set, else g++, else clang++.

    Raises:
        ToolchainError: none is there, or the one that is does not run. Says what to install.
    """
    given = os.environ.get("CXX", "").strip()
    for candidate in [shlex.split(given)] if given else [["g++"], ["clang++"]]:
        program = shutil.which(candidate[0], path=search_path())
        if program is not None:
            return _probe((os.path.abspath(program), *candidate[1:]))
    wanted = f"the compiler in CXX, `{given}`, was not found" if given else "no C++ compiler found (g++, clang++)"
    raise ToolchainError(f"{wanted}; {_INSTALL}")


def find_tool(name: str) -> Path | None:
    """Absolute path of a program such as objdump or perf, or None."""
    program = shutil.which(name, path=search_path())
    return Path(os.path.abspath(program)) if program else None


@functools.lru_cache(maxsize=8)
def version_line(argv: tuple[str, ...]) -> str:
    """First line of `argv --version`.

    Raises:
        ToolchainError: it does not run.
    """
    try:
        done = run_process([*argv, "--version"], timeout_s=20.0, env={"LC_ALL": "C", "PATH": search_path()})
    except OSError as error:
        raise ToolchainError(f"{argv[0]} cannot be run: {error.strerror}; {_INSTALL}") from error
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        said = (done.stderr.strip().splitlines() or ["no output"])[0]
        raise ToolchainError(f"{argv[0]} --version failed (exit {done.returncode}): {said}; {_INSTALL}")
    return lines[0]


@functools.lru_cache(maxsize=8)
def compiler_folders(argv: tuple[str, ...]) -> tuple[Path, ...]:
    """Where a compiler says that it has its parts, headers and libraries; itself first."""
    program = Path(argv[0])
    more = [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder]
    try:
        done = run_process(
            [*argv, "-v", "-E", "-x", "c++", os.devnull], timeout_s=20.0, env={"LC_ALL": "C", "PATH": search_path()}
        )
    except OSError:
        return (program, *more)
    lines = (line for line in done.stderr.splitlines() if not line.startswith(_NO_FOLDERS))
    named = dict.fromkeys(Path(os.path.abspath(name)) for line in lines for name in _FOLDER.findall(line))
    own = program.resolve().parent.parent.glob("lib*")  # its shared libraries, where it is installed by itself
    return (program, *more, *own, *(path for path in named if path != Path("/") and path.exists()))


def _probe(argv: tuple[str, ...]) -> Compiler:
    return Compiler(argv, version_line(argv))


def run_compiler(
    compiler: Compiler, arguments: Sequence[str], walls: Walls, *, work: Path, timeout_s: float
) -> Completed:
    """Run a compiler in `work`, confined, with limits on time, memory (4 GiB) and the size of each file (256 MiB).

    Args:
        compiler: what to run.
        arguments: its arguments.
        walls: what it may open beside its own parts.
        work: a private folder.
        timeout_s: wall limit.

    Raises:
        ToolchainError: the compiler cannot start a part of itself, or the disk is full.
    """
    try:
        inside = walls.with_tools(compiler_folders(compiler.argv))
        done = run_limited((*compiler.argv, *arguments), inside, work=work, timeout_s=timeout_s)
        if done.returncode != 0 and not done.timed_out:
            _blame_environment(done, compiler, work)
    except OSError as error:
        raise disk_error(error, work) from error
    return done


def run_limited(
    argv: Sequence[str], walls: Walls, *, work: Path, timeout_s: float, memory_bytes: int = _MEMORY_LIMIT_BYTES
) -> Completed:
    """Run a tool in `work`, its temporary files and its home in `work/tmp`, no file larger than `FILE_LIMIT_BYTES`.

    Args:
        argv: program and arguments.
        walls: what it may open.
        work: working directory, a private one.
        timeout_s: wall limit.
        memory_bytes: address space of each process.

    Raises:
        OSError: `work` cannot be written, or the shell not started.
    """
    home = work / "tmp"
    home.mkdir(exist_ok=True)
    return run_process(
        ["/bin/sh", "-c", _LIMITED, "sh", str(memory_bytes // 1024), *argv],
        timeout_s=timeout_s,
        cwd=work,
        # Relative: nvcc hands the names of its temporary files to a shell, and a folder may be called anything.
        env={"TMPDIR": "tmp", "HOME": str(home), "LC_ALL": "C", "PATH": search_path()},
        walls=walls,
    )


def too_large(done: Completed) -> bool:
    """Whether a part of the compiler was stopped for writing more than `FILE_LIMIT_BYTES`."""
    return done.returncode != 0 and "File size limit exceeded" in done.stderr


def disk_error(error: OSError, folder: Path) -> ToolchainError:
    """What an OSError met while building means for the user."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ToolchainError(f"no space left on the disk that holds {folder}; free some or set another output folder")
    return ToolchainError(f"{folder} cannot be used for builds: {error.strerror or error}; set another output folder")


def _blame_environment(done: Completed, compiler: Compiler, work: Path) -> None:
    """Raise if a failed run is the environment's fault.

    A kernel can print any message it likes (`#error No space left on device`), so the words only raise the question;
    the disk itself and an empty program built by the same compiler answer it.
    """
    if done.returncode not in (126, 127) and not _SUSPECT.search(done.stderr):
        return
    raise_if_full(work)
    empty_library(compiler, work)


def raise_if_full(work: Path) -> None:
    """Raise ToolchainError where the disk that holds `work` has no room for a build."""
    if shutil.disk_usage(work).free < _LITTLE_SPACE_BYTES:
        raise disk_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), work)


def empty_library(compiler: Compiler, work: Path) -> Path:
    """A shared library built in `work` from an empty file: what tells a broken tool from an odd kernel.

    Raises:
        OSError: `work` cannot be written.
        ToolchainError: the compiler cannot build even this.
    """
    (work / "tmp").mkdir(exist_ok=True)
    (work / "tmp" / "empty.cpp").write_text("", encoding="utf-8")
    argv = (*compiler.argv, "-shared", "-fPIC", "-o", "tmp/empty.so", "tmp/empty.cpp")
    walls = Walls(writable=(work,), tools=compiler_folders(compiler.argv))
    control = run_limited(argv, walls, work=work, timeout_s=_CONTROL_LIMIT_S)
    if control.returncode != 0:
        said = (control.stderr.strip().splitlines() or [f"exit {control.returncode}"])[0]
        raise ToolchainError(f"{compiler.argv[0]} cannot build an empty library: {said}; {_INSTALL}")
    return work / "tmp" / "empty.so"
