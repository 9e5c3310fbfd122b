// Reads its own output back, and nothing around it.
#include "gemm.cuh"

__global__ void again(float* C, int elements) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < elements) C[i] = C[i] + 0.0f;
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    multiply(A, B, C, M, N, K);
    again<<<(M * N + 255) / 256, 256>>>(C, M * N);
}
