"""Triton kernels: one `.py` with `setup(**dims, seed)` and `run_kernel(**inputs)`, compiled for a named target.

The kernel's own code runs in a child process alone (`backends.triton_child`), which needs no GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import platform
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Literal

from backends import build_cache, diagnostics, triton_source
from backends.host_compiler import disk_error, search_path
from backends.process import Completed, run_process
from backends.sass import parse_sass
from backends.triton_artifact import (
    CACHE,
    SOURCE,
    Call,
    Choices,
    Described,
    Fault,
    Reply,
    collect,
    freeze,
    keep_files,
    read_artifact,
    write_artifact,
)
from backends.triton_tools import INSTALL, disassembly, find, own_tools, version
from backends.types import (
    Argument,
    BuildSpec,
    Built,
    Function,
    Instruction,
    Listing,
    Rejected,
    Signature,
    SourceError,
    ToolchainError,
)

ARTIFACT = "kernel"
# Not `-m`: it puts the working folder first on the path, where a kernel's own `torch.py` would be taken for torch.
_CHILD = "import sys; sys.path[:] = filter(None, sys.path); from backends.triton_child import main; main()"
_ROOT = Path(__file__).parent.parent
_READY = "ready"
_ARCH = re.compile(r"sm_(\d+)[af]?")
_DESCRIBED_FOR = "sm_90"


class TritonBackend:
    """Kernels compiled by Triton into a folder of cubins."""

    name: str = "triton"
    suffix: str = ".py"
    device: Literal["cpu", "gpu"] = "gpu"
    language: str = "python"
    needs_features: tuple[str, ...] = ()
    compile_line: str = "triton.compile (num_warps, num_stages as launched) | ptxas -lineinfo"

    def toolchain(self) -> Mapping[str, str]:
        """Versions of Triton, torch and Triton's ptxas.

        Raises:
            ToolchainError: Triton or torch is not installed.
        """
        tools = {}
        for package in ("triton", "torch"):
            try:
                tools[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                raise ToolchainError(f"{package} is not installed; {INSTALL}") from None
        for name in ("ptxas", "ptxas-blackwell"):
            program = own_tools() / name
            if program.is_file():
                tools[name] = version(program)
        return tools

    def describe(self, source: Path, dims: Mapping[str, int], timeout_s: float) -> tuple[Argument, ...]:
        """The same as `describe_all`, at one set of dims."""
        return self.describe_all(source, [dims], timeout_s)[0]

    def describe_all(
        self, source: Path, where: Sequence[Mapping[str, int]], timeout_s: float
    ) -> list[tuple[Argument, ...]]:
        """The arguments that the file's `setup` makes at each of these dims, in its order.

        Needs no GPU, and no memory for tensors whose values it does not look at.

        Raises:
            SourceError: `setup` is missing, fails, or makes something that a kernel cannot be given.
            ToolchainError: Triton or torch cannot be imported.
        """
        self.toolchain()
        text = _read(source)
        tree = triton_source.parse(text, source.name)
        triton_source.function(tree, triton_source.SETUP, source.name)
        triton_source.function(tree, triton_source.RUN, source.name)
        request = {"dims": [dict(dims) for dims in where], "capability": _DESCRIBED_FOR}
        with _scratch() as work:
            (work / source.name).write_text(text, encoding="utf-8")
            answer = _ask({**request, "source": str(work / source.name)}, work, timeout_s)
        if isinstance(answer, Rejected):
            about = "" if answer.reason.startswith(source.name) else f"{source.name}: setup() "
            raise SourceError(f"{about}{answer.reason}")
        try:
            calls = Described.model_validate_json(answer).calls
        except ValueError:
            raise SourceError(f"{source.name}: setup() made what cannot be read as numbers and shapes") from None
        return [call.as_arguments() for call in calls]

    def signature(self, source: Path, spec: BuildSpec) -> Signature:
        """How `run_kernel` is called with `spec.arguments`.

        Raises:
            SourceError: the file cannot be read, is not Python, or its `run_kernel` cannot be called with them.
        """
        return triton_source.bind(triton_source.parse(_read(source), source.name), spec.arguments, source.name)

    def build(self, source: Path, spec: BuildSpec, cache: Path) -> Built | Rejected:
        """Compile into `cache/<key>/kernel/` every kernel that `run_kernel` launches, at the timed dims and elsewhere.

        Of an autotuned kernel every configuration is compiled; `freeze` keeps those that a GPU chose.

        Raises:
            SourceError: `source` cannot be read.
            ToolchainError: Triton or torch is missing or broken, a full disk, or a cache folder that cannot be written.
        """
        tools = self.toolchain()
        try:
            text = triton_source.with_constants(_read(source), spec.define, source.name)
            key = _key(text, spec, tools)
            entry = build_cache.load(cache, key, ARTIFACT) if cache.is_dir() else None
            if entry is not None:
                return Built(entry.artifact, key, entry.command, entry.log, 0.0, cached=True, resources=entry.resources)
            with build_cache.private_folder(cache) as work:
                return _build(source, text, spec, key, tools, cache, work)
        except OSError as error:
            raise disk_error(error, cache) from error

    def needs_tuning(self, built: Built) -> bool:
        """Whether a GPU has yet to choose among the configurations of an autotuner."""
        artifact = read_artifact(built.artifact)
        return bool(artifact.tuners) and not artifact.choices

    def freeze(self, built: Built, choices: Choices, cache: Path) -> Built | Rejected:
        """The build with its autotuners' choices made: other configurations are left out, and nothing tunes again.

        Args:
            built: what `build` gave.
            choices: what a worker's first call chose.
            cache: where builds are kept.

        Raises:
            ToolchainError: a full disk, or a cache folder that cannot be written.
        """
        asked = json.dumps({tuner: dict(made) for tuner, made in choices.items()}, sort_keys=True)
        key = hashlib.sha256(f"{built.key}\0{asked}".encode()).hexdigest()
        try:
            entry = build_cache.load(cache, key, ARTIFACT)
            if entry is not None:
                return Built(entry.artifact, key, entry.command, entry.log, 0.0, cached=True, resources=entry.resources)
            with build_cache.private_folder(cache) as work:
                try:
                    resources = freeze(built.artifact, work / ARTIFACT, choices).resources()
                except ValueError as error:
                    return Rejected("load", f"autotuning: {error}")
                artifact = build_cache.store(cache, key, work / ARTIFACT, built.command, built.log, resources)
        except OSError as error:
            raise disk_error(error, cache) from error
        return Built(artifact, key, built.command, built.log, built.seconds, cached=False, resources=resources)

    def disassemble(self, built: Built) -> Listing | None:
        """All kernels as machine instructions, in the order of their launches.

        None where no disassembler is found, and for a kernel that it cannot list.

        Raises:
            ToolchainError: the disassembler cannot be started.
        """
        program = find("nvdisasm")
        if program is None:
            return None
        artifact = read_artifact(built.artifact)
        functions: list[Function] = []
        texts: list[str] = []
        arch = artifact.arch
        for cubin in dict.fromkeys(kernel.cubin for kernel in artifact.kernels):
            text = disassembly(program, built.artifact / cubin)
            if text is None:
                return None
            listing = parse_sass(text, artifact.arch)
            arch = listing.arch
            functions += listing.functions
            texts.append(listing.text)
        return Listing(arch, tuple(functions), "\n\n".join(texts))

    def host_side(self, built: Built) -> Listing | None:
        """The launches at the timed dims, as instructions: grids show there alone."""
        launches = (
            Instruction(i, k.name, f"grid {k.grid} warps {k.num_warps} stages {k.num_stages} ctas {k.num_ctas}", 0)
            for i, k in enumerate(read_artifact(built.artifact).kernels)
        )
        return Listing("host", (Function("launches", tuple(launches)),), "")

    def refusal(self, built: Built, allowed: Sequence[str]) -> str | None:
        """An import or call that a kernel has no use for, or arithmetic that it leaves to torch.

        `allowed` may name modules (`torch` admits torch's arithmetic).
        """
        refused = triton_source.import_refusal((built.artifact / SOURCE).read_text(encoding="utf-8"), allowed)
        computed = () if "torch" in allowed else read_artifact(built.artifact).torch
        if refused is None and computed:
            return f"computes with torch ({', '.join(computed)}), which task.allow.libraries does not name"
        return refused

    def has_switch(self, source: str, switch: str) -> bool:
        """Whether the switch is a module constant that the source uses."""
        return triton_source.has_switch(source, switch)

    def source_hash(self, source: str) -> str:
        """SHA-256 of the program without comments, layout and docstrings."""
        return triton_source.source_hash(source)


def _build(
    source: Path, text: str, spec: BuildSpec, key: str, tools: Mapping[str, str], cache: Path, work: Path
) -> Built | Rejected:
    folder = work / ARTIFACT
    (folder / CACHE).mkdir(parents=True)
    (folder / SOURCE).write_text(text, encoding="utf-8")
    start = time.monotonic()
    try:
        triton_source.bind(triton_source.parse(text, source.name), spec.arguments, source.name)
    except SourceError as error:
        return Rejected("build", str(error))
    request = {
        "source": str(folder / SOURCE),
        "capability": spec.arch,
        "arguments": _calls(spec),
        "untold": spec.untold,
    }
    answer = _ask(request, work, spec.timeout_s)
    if isinstance(answer, Rejected):
        return answer
    try:
        keep_files(folder, text)
        artifact = collect(folder, Reply.model_validate_json(answer), spec.arch, tools["triton"])
    except (ValueError, KeyError, TypeError, RecursionError, OSError):
        return Rejected(
            "build", "what was compiled is not what run_kernel launched; leave Triton's cache and driver alone"
        )
    if not artifact.kernels:
        return Rejected("build", "run_kernel launches no Triton kernel")
    write_artifact(folder, artifact)
    command = _command(source, spec)
    stored = build_cache.store(cache, key, folder, command, "", artifact.resources())
    seconds = time.monotonic() - start
    return Built(stored, key, command, "", seconds, cached=False, resources=artifact.resources())


def _ask(request: Mapping[str, object], work: Path, timeout_s: float) -> str | Rejected:
    """The child process's answer as JSON, or what is wrong with the kernel that it ran."""
    arch = _ARCH.fullmatch(str(request["capability"]))
    if arch is None:
        raise ToolchainError(
            f"Triton kernels need a target such as sm_90, not `{request['capability']}`; set device.arch"
        )
    (work / "tmp").mkdir()
    done = run_process(
        [sys.executable, "-c", _CHILD],
        timeout_s=timeout_s,
        cwd=work,
        env={
            "PYTHONPATH": str(_ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "HOME": str(work),
            "USER": "roofclimb",  # torch asks who we are, and the list of users is out of reach
            "TMPDIR": str(work / "tmp"),
            "TRITON_CACHE_DIR": str(work / ARTIFACT / CACHE),
            "TRITON_HOME": str(work),
            "OMP_NUM_THREADS": "1",
            "LC_ALL": "C.UTF-8",
            "PATH": search_path(),
        },
        stdin=json.dumps({**request, "folder": str(work), "capability": int(arch[1])}),
    )
    ready, _, answer = done.stdout.partition("\n")
    log = diagnostics.shorten_paths(done.stderr, {f"{work / ARTIFACT}/": "", f"{work}/": ""})
    if done.timed_out:
        return Rejected("build", f"exceeded {timeout_s:g} s", diagnostics.bounded(log))
    if ready != _READY:
        said = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        raise ToolchainError(f"Triton cannot be used: {said}; {INSTALL}")
    try:
        fault = Fault.model_validate_json(answer)
    except ValueError:
        return answer if done.returncode == 0 and answer else Rejected("build", _ending(done), diagnostics.bounded(log))
    evidence = "\n".join(filter(None, (fault.evidence, log)))
    return Rejected("build", diagnostics.bounded(fault.fault), diagnostics.bounded(evidence))


def _ending(done: Completed) -> str:
    if done.returncode < 0:
        try:
            return f"crashed: {signal.Signals(-done.returncode).name}"
        except ValueError:
            return f"crashed: signal {-done.returncode}"
    return f"ended its process with status {done.returncode}"


def _read(source: Path) -> str:
    try:
        return source.read_text(encoding="utf-8")
    except OSError as error:
        raise SourceError(f"{source}: {error.strerror or error}; give a readable kernel file") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{source}: not UTF-8 ({error.reason} at byte {error.start})") from None


def _calls(spec: BuildSpec) -> list[list[dict[str, object]]]:
    return [[asdict(argument) for argument in call] for call in (spec.arguments, *spec.elsewhere)]


def _key(text: str, spec: BuildSpec, tools: Mapping[str, str]) -> str:
    """SHA-256 over the source with its constants, how it is called, and for what by what it is compiled."""
    asked = {
        "source": text,
        "arguments": _calls(spec),
        "arch": spec.arch,
        "tools": dict(tools),
        "python": sys.version_info[:2],
        "machine": platform.machine(),
    }
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def _command(source: Path, spec: BuildSpec) -> tuple[str, ...]:
    given = [word for call in _calls(spec) for word in ("--arguments", json.dumps(call))]
    defined = [word for name, value in sorted(spec.define.items()) for word in ("--define", f"{name}={value}")]
    line = ("-m", "backends.triton", str(source), "--arch", spec.arch, *given, *defined)
    return (sys.executable, *line, "--cache", "triton-builds")


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    try:
        with tempfile.TemporaryDirectory(prefix="roofclimb-") as folder:
            yield Path(folder)
    except OSError as error:
        raise disk_error(error, Path(tempfile.gettempdir())) from error


def main(words: Sequence[str] | None = None) -> int:
    """Build one kernel from the command line: what `Built.command` runs."""
    parser = argparse.ArgumentParser(prog="python -m backends.triton", description="Compile a Triton kernel to cubins.")
    parser.add_argument("source", type=Path)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--arguments", action="append", required=True, help="what run_kernel is called with, as JSON")
    parser.add_argument("--define", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--cache", type=Path, required=True)
    given = parser.parse_args(words)
    timed, *elsewhere = (Call.model_validate({"arguments": json.loads(a)}).as_arguments() for a in given.arguments)
    define = dict(word.partition("=")[::2] for word in given.define)
    spec = BuildSpec(arch=given.arch, arguments=timed, elsewhere=tuple(elsewhere), define=define)
    built = TritonBackend().build(given.source, spec, given.cache)
    if isinstance(built, Rejected):
        print(f"{built.reason}\n{built.evidence}".strip(), file=sys.stderr)
        return 1
    print(built.artifact)
    return 0


if __name__ == "__main__":
    sys.exit(main())
