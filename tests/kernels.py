"""Small kernels and tasks that several tests measure."""

from __future__ import annotations

from pathlib import Path

from backends.process import run_process
from backends.types import Parameter, Signature
from profiling.types import Case, Problem, Scalar, Tensor, Tolerance

GEMM_REFERENCE = """
def reference(A, B, C, M, N, K):
    C.copy_(A @ B)
"""
GEMM_HEAD = 'extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K)'
GEMM_NAIVE = f"""
{GEMM_HEAD} {{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {{
            float s = 0;
            for (int k = 0; k < K; k++) s += A[i * K + k] * B[k * N + j];
            C[i * N + j] = s;
        }}
}}
"""
GEMM_FAST = f"""
{GEMM_HEAD} {{
    for (int i = 0; i < M; i++) {{
        for (int j = 0; j < N; j++) C[i * N + j] = 0;
        for (int k = 0; k < K; k++) {{
            float a = A[i * K + k];
            for (int j = 0; j < N; j++) C[i * N + j] += a * B[k * N + j];
        }}
    }}
}}
"""


def compile_kernel(source: str, folder: Path, name: str) -> Path:
    """Build C++ text into `folder/name.so`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.cpp"
    path.write_text(source)
    target = folder / f"{name}.so"
    flags = ["-std=c++17", "-O2", "-march=x86-64-v3", "-shared", "-fPIC", "-pthread"]
    done = run_process(["g++", *flags, str(path), "-o", str(target)], timeout_s=60.0)
    assert done.returncode == 0, done.stderr
    return target


def pointer(name: str, dtype: str = "float32", *, const: bool) -> Parameter:
    """A pointer parameter."""
    c_type = {"float32": "float", "float64": "double"}.get(dtype, f"{dtype}_t")
    return Parameter(name, f"{'const ' if const else ''}{c_type}*", dtype, pointer=True, const=const)


def integer(name: str) -> Parameter:
    """An `int` parameter."""
    return Parameter(name, "int", "int32", pointer=False, const=False)


GEMM_SIGNATURE = Signature(
    (pointer("A", const=True), pointer("B", const=True), pointer("C", const=False), *map(integer, "MNK"))
)


def gemm_case(m: int, n: int, k: int) -> Case:
    """The arguments of an m by n by k product."""
    return Case(
        {"M": m, "N": n, "K": k},
        (
            Tensor("A", (m, k), "float32", "in"),
            Tensor("B", (k, n), "float32", "in"),
            Tensor("C", (m, n), "float32", "out"),
            *(Scalar(name, "int32", value) for name, value in (("M", m), ("N", n), ("K", k))),
        ),
    )


def gemm_problem(folder: Path, size: int = 96, tolerance: Tolerance | None = None) -> Problem:
    """A square float32 product with an odd extra shape."""
    reference = folder / "gemm_ref.py"
    reference.write_text(GEMM_REFERENCE)
    checks = (gemm_case(33, 17, 29),)
    return Problem("gemm", GEMM_SIGNATURE, gemm_case(size, size, size), checks, reference, tolerance)
