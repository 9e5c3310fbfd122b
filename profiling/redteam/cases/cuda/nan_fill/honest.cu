// Marks its output with NaN first, then works.
#include "gemm.cuh"

__global__ void fill(float* C, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) C[i] = __int_as_float(0x7fffffff);
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    fill<<<(M * N + 255) / 256, 256>>>(C, M * N);
    multiply(A, B, C, M, N, K);
}
