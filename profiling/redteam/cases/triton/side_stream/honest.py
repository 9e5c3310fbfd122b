# Launches on the default stream, and leaves waiting for it to its caller, as the cheat does.
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr):
    rows = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[:, None]
    cols = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for start in range(0, K, BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + rows * K + lanes[None, :], mask=(rows < M) & (lanes[None, :] < K), other=0.0)
        b = tl.load(b_ptr + lanes[:, None] * N + cols, mask=(lanes[:, None] < K) & (cols < N), other=0.0)
        total += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + rows * N + cols, total, mask=(rows < M) & (cols < N))


def multiply(a, b, c, M, N, K, block=32):
    product[(triton.cdiv(M, block), triton.cdiv(N, block))](a, b, c, M, N, K, BLOCK=block)


def run_kernel(a, b, c, M, N, K):
    multiply(a, b, c, M, N, K)
