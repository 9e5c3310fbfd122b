"""Builds the harness's own native parts for a signature: the runner, the empty `solve`, the cache flush."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from backends import build_cache
from backends.host_compiler import Compiler, find_compiler, search_path
from backends.process import run_process
from backends.scalar_types import passed_as
from backends.types import Parameter, Signature
from profiling.types import HarnessFault, TaskError

_NATIVE = Path(__file__).parent.parent / "native"
_FLAGS = ("-std=c++17", "-O2", "-Wall")
READ_ONLY_TABLES = "-Wl,-z,relro,-z,now"  # for the linker: of what the loader relocates, nothing stays writable


@dataclass(frozen=True, slots=True)
class Native:
    """Paths of the built parts. `empty` is a kernel that does nothing; `flush` is None on a GPU.

    For a GPU the runner talks to the driver, and needs no CUDA toolkit to be built.
    """

    runner: Path
    empty: Path
    flush: Path | None


def build_native(signature: Signature, cache: Path, *, gpu: bool = False) -> Native:
    """Build, or find in `cache`, what runs candidates of this signature, on a GPU or on the host.

    Raises:
        TaskError: a by-value parameter has a type that no C++ caller can pass.
        ToolchainError: no C++ compiler.
        HarnessFault: the compiler rejects our own sources.
    """
    build = Builder(find_compiler(), cache)
    return Native(
        runner=_build_runner(signature, build, ("gpu.cpp",) if gpu else (), ("-DROOFCLIMB_GPU",) if gpu else ()),
        empty=build("empty.so", {"empty.cpp": empty_source(signature)}, ("empty.cpp",), ("-shared", "-fPIC")),
        flush=None if gpu else build_flush(cache),
    )


def build_sanitized_runner(signature: Signature, cache: Path, sanitizer: str) -> Path:
    """The host's runner linked with a compiler's sanitizer (`address`, `thread`), for kernels built with the same.

    Raises:
        ToolchainError: no C++ compiler.
        HarnessFault: the compiler cannot link it, as where the sanitizer's library is not installed.
    """
    return _build_runner(signature, Builder(find_compiler(), cache), (), (f"-fsanitize={sanitizer}", "-pthread"))


def _build_runner(signature: Signature, build: Builder, more: tuple[str, ...], options: tuple[str, ...]) -> Path:
    units = ("runner.cpp", "walls.cpp", "seal.cpp", *more)
    sources = {
        name: (_NATIVE / name).read_text(encoding="utf-8")
        for name in (*units, "walls.h", "seal.h", "protocol.h", "gpu.h", "gpu_kernels.h")
    }
    flags = (READ_ONLY_TABLES, "-ldl", *options)
    return build("runner", {**sources, "stub.h": stub_source(signature)}, units, flags)


def build_flush(cache: Path) -> Path:
    """The library that puts memory out of the host's caches, built or found in `cache`. Raises like `build_native`."""
    text = (_NATIVE / "flush.cpp").read_text(encoding="utf-8")
    return Builder(find_compiler(), cache)("flush.so", {"flush.cpp": text}, ("flush.cpp",), ("-shared", "-fPIC"))


def probe_command(cache: Path, gpu: str) -> list[str]:
    """A program that launches one kernel of its own on a GPU between a profiler's marks.

    Raises:
        ToolchainError: no C++ compiler.
        HarnessFault: the compiler rejects our own sources.
    """
    return [str(build_native(Signature(()), cache, gpu=True).runner), "--probe", gpu]


def stub_source(signature: Signature) -> str:
    """The header with `call_solve`, which casts each argument to its full C type so that nothing is truncated."""
    types = ", ".join(c_types(signature))
    loads = "".join(
        f"    {_c_type(p)} a{i};\n    memcpy(&a{i}, &words[{i}], sizeof a{i});\n"
        for i, p in enumerate(signature.parameters)
    )
    call = f"reinterpret_cast<{signature.returns} (*)({types})>(solve)({_names(signature)})"
    end = f"    return {call};" if signature.returns == "int" else f"    {call};\n    return 0;"
    return (
        "#pragma once\n#include <cstdint>\n#include <cstring>\n"
        f"static inline int64_t call_solve(void* solve, const uint64_t* words) {{\n    (void)words;\n{loads}{end}\n}}\n"
    )


def empty_source(signature: Signature) -> str:
    """A `solve` of this signature that does nothing."""
    types = ", ".join(c_types(signature))
    end = " return 0; " if signature.returns == "int" else ""
    return f'#include <cstdint>\nextern "C" {signature.returns} solve({types}) {{{end}}}\n'


def c_types(signature: Signature) -> list[str]:
    """What `solve` takes as a caller passes it, pointers as `void*`. Raises TaskError: a type that cannot be passed."""
    return [_c_type(p) for p in signature.parameters]


def _names(signature: Signature) -> str:
    return ", ".join(f"a{i}" for i in range(len(signature.parameters)))


def _c_type(parameter: Parameter) -> str:
    if parameter.pointer:
        return "void*"
    c_type = passed_as(parameter.type, parameter.dtype)
    if c_type is None:
        raise TaskError(f"{parameter.name}: a by-value {parameter.type} cannot be passed to a C++ kernel: use float")
    return c_type


@dataclass(frozen=True, slots=True)
class Builder:
    """Compiles our own C++ sources with the host's compiler, once for equal sources."""

    compiler: Compiler
    cache: Path

    def __call__(self, name: str, files: dict[str, str], units: tuple[str, ...], flags: tuple[str, ...]) -> Path:
        """Compile `units` among `files` into `cache/harness/<key>/<name>`; an equal build is reused."""
        asked = (self.compiler, _FLAGS, flags, units, sorted(files.items()))
        digest = hashlib.sha256(repr(asked).encode()).hexdigest()
        builds = self.cache.absolute() / "harness"
        target = builds / digest[:24] / name
        if target.exists():
            build_cache.mark_used(target.parent)
            return target
        with build_cache.private_folder(builds) as folder:
            for file, text in files.items():
                (folder / file).write_text(text, encoding="utf-8")
            argv = [*self.compiler.argv, *_FLAGS, *units, *flags, "-o", name]
            done = run_process(argv, timeout_s=120.0, cwd=folder, env={"LC_ALL": "C", "PATH": search_path()})
            if done.returncode != 0:
                raise HarnessFault(
                    f"cannot build the harness's {name} with {self.compiler.argv[0]}: {done.stderr[-800:]}"
                )
            target.parent.mkdir(exist_ok=True)
            os.replace(folder / name, target)
        return target
