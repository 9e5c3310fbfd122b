"""What is to be measured: a kernel's task, and how. Times in ms, sizes in bytes; missing is None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from backends.types import Signature

Role = Literal["in", "out", "inout"]
Init = Literal["normal", "uniform", "zeros", "ones", "reference"]


class TaskError(Exception):
    """The task itself is unfit (exit code 2): a raising reference, a wrong shape, a tolerance that zeros pass …"""


class HarnessFault(Exception):
    """The harness broke (exit code 5). Never the candidate's doing."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One pointer argument at concrete dims. `elements` is the product of `shape`.

    Attributes:
        name, shape, dtype, role: as the task says.
        init: how an input is filled.
        zeroed: an output that holds zeros before every call, not random bytes.
        unordered: an output whose elements may come in any order along the last axis.
        ties: of an output of indices, the tensor that they point into along its last axis: an index is right where the
            value there equals the one at the reference's index.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Role
    init: Init = "normal"
    zeroed: bool = False
    unordered: bool = False
    ties: str | None = None
    kind: Literal["tensor"] = "tensor"

    @property
    def elements(self) -> int:
        """Number of elements."""
        n = 1
        for extent in self.shape:
            n *= extent
        return n


@dataclass(frozen=True, slots=True)
class Scalar:
    """One by-value argument, already checked against the range of its type."""

    name: str
    dtype: str
    value: int | float | bool
    kind: Literal["scalar"] = "scalar"


@dataclass(frozen=True, slots=True)
class Case:
    """The kernel's arguments, in signature order, at one set of dims; `secret` dims are told in no reason."""

    dims: Mapping[str, int]
    arguments: tuple[Tensor | Scalar, ...]
    secret: bool = False

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The pointer arguments alone."""
        return tuple(a for a in self.arguments if isinstance(a, Tensor))


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Elementwise `|out - ref| <= atol + rtol*|ref|`, and a relative norm error of at most
    `max(baseline_factor * error of the baseline, eps_factor * eps of the type)`."""

    atol: float
    rtol: float
    baseline_factor: float = 8.0
    eps_factor: float = 32.0


@dataclass(frozen=True, slots=True)
class Problem:
    """All that the harness must know of a task.

    Attributes:
        name: the task's name.
        signature: the baseline's; every candidate must have the same.
        timed: the case that is timed (and checked).
        checks: extra cases for correctness only; secret ones on declared inputs alone.
        reference: the reference module, or None (then nothing can pass: `unverified`).
        tolerance: `atol` and `rtol`; None takes the reference's, else 1e-4 and 1e-3.
        baseline_factor, eps_factor: of the norm check, whoever gave `atol` and `rtol`.
        backend: whose workers run its kernels; CUTLASS kernels are `cuda` here.
        gpu: UUID of the GPU they run on (`GPU-…`), None on a CPU.
    """

    name: str
    signature: Signature
    timed: Case
    checks: tuple[Case, ...]
    reference: Path | None
    tolerance: Tolerance | None = None
    baseline_factor: float = 8.0
    eps_factor: float = 32.0
    backend: Literal["cpp", "cuda", "triton"] = "cpp"
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class MeasureSettings:
    """How long and how to measure.

    Attributes:
        warmup_ms: untimed calls before the first sample, by time.
        min_samples: never fewer samples.
        min_time_s: sampled kernel time to reach before stopping.
        max_time_s: wall limit of one kernel's sampling.
        l2: `cold` flushes the kernel's buffers from the caches before each sample; `hot` does not, and is labelled.
        pairs: fresh pairs of workers of one comparison (at least 3 for a claim).
        seed: None draws a secret one; a value makes inputs repeatable (tests only).
        floor_ms: time below which a measurement is `suspect` (theoretical peaks); None when unknown.
        threads: cores a candidate may use (its worker is pinned to them).
    """

    warmup_ms: float = 50.0
    min_samples: int = 10
    min_time_s: float = 0.2
    max_time_s: float = 20.0
    l2: Literal["cold", "hot"] = "cold"
    pairs: int = 3
    seed: int | None = None
    floor_ms: float | None = None
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Walls around one worker: seconds of one call, resident bytes (None: half of the machine's memory)."""

    call_s: float = 30.0
    memory_bytes: int | None = None
