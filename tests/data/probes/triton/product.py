"""c = a @ b for half-precision matrices: tile by tile with tl.dot, or one row of c per program with plain sums."""

import torch
import triton
import triton.language as tl

RC_PROBE = 1


@triton.jit
def by_tile(a_ptr, b_ptr, c_ptr, n, k, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    steps = tl.arange(0, BLOCK)
    sums = tl.zeros([BLOCK, BLOCK], tl.float32)
    for start in range(0, k, BLOCK):
        a = tl.load(a_ptr + rows[:, None] * k + start + steps[None, :])
        b = tl.load(b_ptr + (start + steps[:, None]) * n + columns[None, :])
        sums = tl.dot(a, b, sums)
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], sums)


@triton.jit
def by_row(a_ptr, b_ptr, c_ptr, n, k, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.zeros([BLOCK], tl.float32)
    for step in range(k):
        sums += tl.load(a_ptr + row * k + step).to(tl.float32) * tl.load(b_ptr + step * n + columns).to(tl.float32)
    tl.store(c_ptr + row * n + columns, sums)


def setup(m, n, k, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = {
        "a": torch.randn(m, k, generator=generator).half(),
        "b": torch.randn(k, n, generator=generator).half(),
        "c": torch.empty(m, n),
        "m": m,
        "n": n,
        "k": k,
    }
    return {"inputs": inputs, "outputs": ["c"]}


def run_kernel(a, b, c, m, n, k):
    if RC_PROBE:
        by_tile[(m // 64, n // 64)](a, b, c, n, k, BLOCK=64, num_stages=3)
    else:
        by_row[(m, n // 128)](a, b, c, n, k, BLOCK=128)
