// The honest product, for cases to include: it leaves no name behind that a case would not expect.
#pragma once
#include <cuda_runtime.h>

static __global__ void product(const float* A, const float* B, float* C, int M, int N, int K) {
    const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= M || j >= N) return;
    float s = 0;
    for (int k = 0; k < K; k++) s += A[i * K + k] * B[k * N + j];
    C[i * N + j] = s;
}

static inline void multiply(const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream = 0) {
    if (M > 0) product<<<dim3((N + 31) / 32, (M + 7) / 8), dim3(32, 8), 0, stream>>>(A, B, C, M, N, K);
}
