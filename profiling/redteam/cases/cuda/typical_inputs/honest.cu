// Has a path for small numbers, and one for large ones.
#include "gemm.cuh"

__global__ void typical(const float* A, const float* B, float* C, int M, int N, int K) {
    const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= M || j >= N) return;
    float s = 0;
    for (int k = 0; k < K; k++) {
        const float a = A[i * K + k], b = B[k * N + j];
        s += fabsf(a) <= 8.0f ? a * b : 8.0f * (a / 8.0f * b);
    }
    C[i * N + j] = s;
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    typical<<<dim3((N + 31) / 32, (M + 7) / 8), dim3(32, 8)>>>(A, B, C, M, N, K);
}
