"""Where a strategy was tried, and how much a result there says about here."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import pairwise

from memory.types import Scope

# Operator family -> the words of a task name that say so. Order matters: a fused kernel belongs to the operator that
# decides how it is built (an attention holds a softmax and two products), so the first family that matches wins.
FAMILY_WORDS: Mapping[str, tuple[str, ...]] = {
    "attention": ("attention", "attn", "mha", "mqa", "gqa", "mla", "sdpa"),
    "conv": ("conv", "convolution", "depthwise"),
    "spmv": ("spmv",),
    "spmm": ("spmm", "sddmm", "spgemm"),
    "gemv": ("gemv", "sgemv", "dgemv", "matvec"),
    "gemm": ("gemm", "sgemm", "dgemm", "hgemm", "igemm", "matmul", "mm", "bmm", "syrk", "linear"),
    "layernorm": ("layernorm", "groupnorm", "instancenorm"),
    "rmsnorm": ("rmsnorm",),
    "batchnorm": ("batchnorm",),
    "softmax": ("softmax", "logsumexp", "crossentropy"),
    "topk": ("topk", "argmax", "argmin"),
    "sort": ("sort", "radixsort", "argsort"),
    "histogram": ("histogram", "hist", "bincount"),
    "scan": ("scan", "cumsum", "cumprod", "prefixsum"),
    "reduction": ("reduction", "reduce", "sum", "dot", "norm", "mean", "variance"),
    "transpose": ("transpose", "permute"),
    "stencil": ("stencil", "jacobi", "laplace", "heat"),
    "gather": ("gather", "scatter", "embedding"),
    "elementwise": (
        *("elementwise", "pointwise", "relu", "gelu", "silu", "swiglu", "sigmoid", "tanh", "axpy", "saxpy"),
        *("vectoradd", "vecadd", "copy", "add", "mul", "scale"),
    ),
}
# Families whose kernels are limited by the same things and built from the same methods.
SISTERS: tuple[frozenset[str], ...] = (
    frozenset({"gemm", "conv", "attention"}),
    frozenset({"softmax", "layernorm", "rmsnorm", "batchnorm", "reduction"}),
    frozenset({"elementwise", "transpose", "gather"}),
    frozenset({"gemv", "reduction"}),
    frozenset({"scan", "reduction"}),
    frozenset({"sort", "topk", "histogram"}),
    frozenset({"spmv", "spmm"}),
)
GPU_BACKENDS = frozenset({"cuda", "cutlass", "triton"})

SISTER_FAMILY = 3.0
OTHER_GPU_BACKEND = 2.0
OTHER_CPU = 3.0
PER_SM_LOG = 10.0
SM_VARIANT = 0.1
PER_DECADE = 0.5
UNKNOWN_SHAPE = 2.0

UNSIZED = "unsized"
_SM = re.compile(r"sm_([1-9]\d*)[a-z]?")
_DECADE = re.compile(r"1e(\d+)")
_TOKEN = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


def derive_family(task_name: str, explicit: str | None = None) -> str:
    """The operator family of a task: the explicit setting, else a known operator word of its name, else the name.

    The name is cut at case changes, digits and punctuation, and neighbours are also tried joined: `gemm_fp32`,
    `SGEMM4096` and `batched_matmul` are `gemm`, `layer_norm` and `LayerNorm` are `layernorm`, `conv2d` is `conv`. A
    name without a known word is its own family (lower case, `_` for anything but letters and digits), so that its
    runs still learn from one another.
    """
    if explicit is not None and explicit.strip():
        return _normalised(explicit)
    tokens = [token.lower() for token in _TOKEN.findall(task_name)]
    words = {*tokens, *(left + right for left, right in pairwise(tokens))}
    for family, known in FAMILY_WORDS.items():
        if not words.isdisjoint(known):
            return family
    return _normalised(task_name)


def shape_class(dims: Mapping[str, int]) -> str:
    """Order of magnitude of the work, `1e8`: the product of the dims that are at least 1, rounded down to a decade.

    The product stands for the work because it needs nothing but the dims: it is M·N·K for a GEMM and rows·columns for
    a softmax, and only tasks of one family are ever compared by it. 512³ is `1e8`, 2048³ `1e9`, 4096³ `1e10`. A task
    without dims is `unsized`.
    """
    sizes = [size for size in dims.values() if size >= 1]
    if not sizes:
        return UNSIZED
    return f"1e{len(str(math.prod(sizes))) - 1}"


def distance(a: Scope, b: Scope) -> float | None:
    """How far evidence of one scope is from the other: 0 is the same scope, None is unrelated. Symmetric.

    The sum of four terms (the halves of a result's worth: recall weighs it by 2 to the minus distance):

    - family: 0 for the same, 3 for a sister (`SISTERS`), else unrelated;
    - backend: 0 for the same, 2 between GPU backends, else unrelated;
    - architecture: 10·|ln(a/b)| of the `sm_` numbers, so that generations count by their ratio and sm_90 is nearer to
      sm_100 (1.05) than to sm_80 (1.18), plus 0.1 where only the variant letter differs (sm_90, sm_90a); 3 between
      two CPU architectures; a CPU and a GPU are unrelated;
    - shape: 0.5 for each decade of work; 2 where one of two different classes is not a decade.
    """
    found = terms(a, b).values()
    known = [term for term in found if term is not None]
    return sum(known) if len(known) == len(found) else None


def terms(a: Scope, b: Scope) -> Mapping[str, float | None]:
    """The four terms of `distance` by name; None for one that makes the scopes unrelated."""
    return {
        "family": _family_distance(a.family, b.family),
        "backend": _backend_distance(a.backend, b.backend),
        "arch": _arch_distance(a.arch, b.arch),
        "shape": _shape_distance(a.shape_class, b.shape_class),
    }


def related(scope: Scope) -> tuple[frozenset[str], frozenset[str]]:
    """The families and the backends that evidence may come from; `distance` decides about each."""
    families = frozenset({scope.family}).union(*(group for group in SISTERS if scope.family in group))
    return families, GPU_BACKENDS if scope.backend in GPU_BACKENDS else frozenset({scope.backend})


def describe(scope: Scope) -> str:
    """`gemm/cpp/x86_64/1e8`, as in evidence lines and listings."""
    return "/".join((scope.family, scope.backend, scope.arch, scope.shape_class))


def _normalised(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower())[:100].strip("_") or "unnamed"


def _family_distance(a: str, b: str) -> float | None:
    if a == b:
        return 0.0
    return SISTER_FAMILY if any({a, b} <= group for group in SISTERS) else None


def _backend_distance(a: str, b: str) -> float | None:
    if a == b:
        return 0.0
    return OTHER_GPU_BACKEND if {a, b} <= GPU_BACKENDS else None


def _arch_distance(a: str, b: str) -> float | None:
    if a == b:
        return 0.0
    left, right = _SM.fullmatch(a), _SM.fullmatch(b)
    if left and right:
        if left[1] == right[1]:
            return SM_VARIANT
        return PER_SM_LOG * abs(math.log(int(left[1])) - math.log(int(right[1])))
    return None if left or right else OTHER_CPU


def _shape_distance(a: str, b: str) -> float:
    if a == b:
        return 0.0
    left, right = _DECADE.fullmatch(a), _DECADE.fullmatch(b)
    return PER_DECADE * abs(int(left[1]) - int(right[1])) if left and right else UNKNOWN_SHAPE
