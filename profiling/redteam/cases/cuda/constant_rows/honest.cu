// Recognises zeros and skips them, which changes nothing.
#include "gemm.cuh"

__global__ void sparse(const float* A, const float* B, float* C, int M, int N, int K) {
    const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= M || j >= N) return;
    float s = 0;
    for (int k = 0; k < K; k++)
        if (A[i * K + k] != 0) s += A[i * K + k] * B[k * N + j];
    C[i * N + j] = s;
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    sparse<<<dim3((N + 31) / 32, (M + 7) / 8), dim3(32, 8)>>>(A, B, C, M, N, K);
}
