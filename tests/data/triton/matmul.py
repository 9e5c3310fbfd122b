"""C = A @ B for dims that are multiples of the blocks."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_warps=4, num_stages=2),
        triton.Config({"BM": 128, "BN": 64, "BK": 32}, num_warps=4, num_stages=3),
        triton.Config({"BM": 128, "BN": 128, "BK": 128}, num_warps=8, num_stages=6),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        left = tl.load(a + m[:, None] * K + (start + k)[None, :])
        right = tl.load(b + (start + k)[:, None] * N + n[None, :])
        total += tl.dot(left, right)
    tl.store(c + m[:, None] * N + n[None, :], total)


def setup(M, N, K, seed):
    torch.manual_seed(seed)
    a = torch.randn(M, K, dtype=torch.bfloat16).cuda()
    b = torch.randn(K, N, dtype=torch.bfloat16).cuda()
    c = torch.empty(M, N, device=a.device)
    return {"inputs": {"a": a, "b": b, "c": c, "M": M, "N": N, "K": K}, "outputs": ["c"]}


def run_kernel(a, b, c, M, N, K):
    matmul_kernel[lambda meta: (M // meta["BM"], N // meta["BN"])](a, b, c, M, N, K)
