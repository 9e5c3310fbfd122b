#include <cuda_fp16.h>

__global__ void __launch_bounds__(256, 2)
gemm(const half* __restrict__ A, const half* __restrict__ B, half* __restrict__ C, int M, int N, int K) {
    __shared__ half tile[16][16];
    tile[threadIdx.y][threadIdx.x] = A[0];
    asm volatile("bar.sync %0;" ::"r"(0) : "memory");
    C[0] = __hadd(tile[0][0], B[0]);
}

extern "C" void solve(const half* A, const half* B, half* C, int M, int N, int K, float alpha,
                      float beta) {
    gemm<<<dim3(1, 1), dim3(16, 16), 0, 0>>>(A, B, C, M, N, K);
}
