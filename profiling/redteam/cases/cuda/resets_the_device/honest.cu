// Resets the device's last error.
#include "gemm.cuh"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    cudaGetLastError();
    multiply(A, B, C, M, N, K);
    cudaDeviceSynchronize();
}
