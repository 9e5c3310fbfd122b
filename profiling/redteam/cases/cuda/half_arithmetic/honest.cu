// Splits each number into two of half precision and a remainder, and loses next to nothing.
#include <cuda_fp16.h>
#include "gemm.cuh"

__global__ void split(const float* A, const float* B, float* C, int M, int N, int K) {
    const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= M || j >= N) return;
    float s = 0;
    for (int k = 0; k < K; k++) {
        const float a = A[i * K + k], b = B[k * N + j];
        const float high = __half2float(__float2half(a));
        s += high * b + (a - high) * b;
    }
    C[i * N + j] = s;
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    split<<<dim3((N + 31) / 32, (M + 7) / 8), dim3(32, 8)>>>(A, B, C, M, N, K);
}
