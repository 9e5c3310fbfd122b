"""What every backend speaks: signatures, builds and listings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

Stage = Literal["answer", "signature", "duplicate", "build", "load", "verify", "time"]


class SourceError(Exception):
    """A kernel source that cannot be bound. The message names the file, the line where known, and what to do."""


class ToolchainError(Exception):
    """A compiler or disassembler is missing or broken: the environment's fault, never the kernel's."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A kernel that did not make it: a value that feeds the next prompt, not an exception.

    Attributes:
        stage: where it fell.
        reason: one line for people and prompts.
        evidence: the trimmed log or values behind the reason.
    """

    stage: Stage
    reason: str
    evidence: str = ""
    kind: Literal["rejected"] = "rejected"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of `solve`.

    Attributes:
        name: the identifier.
        type: the C type, normalised (`const float*`, `int64_t`).
        dtype: element type of a pointer, else of the scalar: float64, float32, float16, bfloat16, float8_e4m3,
            float8_e5m2, bool, int8 … int64, uint8 … uint64, or `void` for an untyped pointer.
        pointer: whether it is a pointer.
        const: whether the pointee is const (for a scalar: always False).
    """

    name: str
    type: str
    dtype: str
    pointer: bool
    const: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """The live definition of `solve` after preprocessing. `returns` is `void` or `int` (0 means success)."""

    parameters: tuple[Parameter, ...]
    returns: Literal["void", "int"] = "void"


@dataclass(frozen=True, slots=True)
class Argument:
    """One keyword argument of a Triton kernel's `run_kernel`, at concrete dims.

    Attributes:
        name: the keyword.
        dtype: element type as in `Parameter`; for a scalar int64, float64 or bool.
        shape: of a tensor; None for a scalar.
        value: of a scalar; None for a tensor.
        output: whether the baseline's `setup` names it among the outputs.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    value: int | float | bool | None
    output: bool


@dataclass(frozen=True, slots=True)
class BuildSpec:
    """How the task wants its kernels built. Part of every build's cache key.

    Attributes:
        flags: extra compiler flags, after the backend's own.
        define: macros, name to value (method switches come this way: `RC_TILING` to `0`).
        include: extra include folders, absolute. Nothing else of the user's can be read by a source.
        hidden: files and folders that a source may not read though they lie in one of `include`.
        std: language standard.
        timeout_s: wall limit of one compiler process.
        arch: GPU architecture of the device that will run it, such as `sm_90`; empty on a CPU. Whether its `a` features
            are asked for (`sm_90a`) is the backend's business.
        arguments: what a Triton kernel's `run_kernel` is called with, at the timed dims; empty for other backends.
        elsewhere: the same at each of the other dims where it must run: a Triton kernel is compiled for all of them.
        untold: how many of these, the last ones, no reason may tell.
    """

    flags: tuple[str, ...] = ()
    define: Mapping[str, str] = field(default_factory=dict)
    include: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    std: str = "c++17"
    timeout_s: float = 120.0
    arch: str = ""
    arguments: tuple[Argument, ...] = ()
    elsewhere: tuple[tuple[Argument, ...], ...] = ()
    untold: int = 0


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What the compiler says one device function takes. None is what it did not say.

    Attributes:
        name: the kernel, demangled where possible.
        arch: `sm_90a` …
        registers: per thread.
        spill_store_bytes, spill_load_bytes, stack_bytes: local memory, per thread.
        shared_bytes: static shared memory, per block.
        constant_bytes: of all constant banks.
    """

    name: str
    arch: str
    registers: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    stack_bytes: int | None = None
    shared_bytes: int | None = None
    constant_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Built:
    """A kernel that compiled.

    Attributes:
        artifact: the shared library (or cubin folder), named by `key`, absolute.
        key: SHA-256 over source, spec and toolchain version: equal keys are equal builds.
        command: the compiler command line.
        log: compiler output (warnings), trimmed.
        seconds: wall time of the build, 0.0 when it came from the cache.
        cached: whether it came from the cache.
        resources: what each device function takes, as the compiler says; empty on a CPU.
    """

    artifact: Path
    key: str
    command: tuple[str, ...]
    log: str
    seconds: float
    cached: bool
    resources: tuple[KernelResources, ...] = ()
    kind: Literal["built"] = "built"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction.

    Attributes:
        address: byte address within the image.
        opcode: the mnemonic alone (`vfmadd231ps`, `HGMMA.64x128x16.F32`).
        operands: the operand text, comments and symbol annotations stripped.
        loop_depth: number of control-flow loops around it; 0 is straight-line.
        target: the called or jumped-to symbol where the disassembler names one, else None.
    """

    address: int
    opcode: str
    operands: str
    loop_depth: int
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """One function of a listing, with the name demangled where possible."""

    name: str
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """The disassembled kernel: only functions that the candidate's own source brought, in the order of the image.

    Attributes:
        arch: `x86_64`, `aarch64`, `sm_90a` …
        functions: the functions.
        text: the disassembler's output for people (the kernel's functions only).
    """

    arch: str
    functions: tuple[Function, ...]
    text: str


class Backend(Protocol):
    """How kernels of one kind are parsed, built and disassembled; `backends.registry.get_backend(name)` finds it."""

    name: str
    suffix: str
    device: Literal["cpu", "gpu"]
    """Where its kernels run."""
    language: str
    """The word that opens a fenced block of its sources: `cpp`, `cuda`, `python`."""
    compile_line: str
    """Compiler and its fixed flags, as prompts show them."""
    needs_features: tuple[str, ...]
    """CPU features, by the names of `/proc/cpuinfo`, without which its kernels cannot run here."""

    def toolchain(self) -> Mapping[str, str]:
        """Tool names to version lines of what this backend uses. Raises ToolchainError: what is missing, what to do."""
        ...

    def signature(self, source: Path, spec: BuildSpec) -> Signature:
        """Parse the one live `solve`. Raises SourceError or ToolchainError."""
        ...

    def build(self, source: Path, spec: BuildSpec, cache: Path) -> Built | Rejected:
        """Compile `source` into `cache`, reusing an equal build. Raises ToolchainError. Safe to call from threads."""
        ...

    def disassemble(self, built: Built) -> Listing | None:
        """Disassemble the built binary; None where the disassembler is missing."""
        ...

    def host_side(self, built: Built) -> Listing | None:
        """What decides on the host how device functions are launched; None where there is no such side, or no tool."""
        ...

    def refusal(self, built: Built, allowed: Sequence[str]) -> str | None:
        """Why a candidate may not be loaded (a library it needs that `allowed` does not name …), or None."""
        ...

    def has_switch(self, source: str, switch: str) -> bool:
        """Whether a method's switch (`RC_TILING`) decides anything in `source`."""
        ...

    def source_hash(self, source: str) -> str:
        """Hex digest of a source without comments and layout: equal for the same program text."""
        ...
