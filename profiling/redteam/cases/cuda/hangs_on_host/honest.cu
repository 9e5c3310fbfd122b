// Waits a little on the host.
#include "gemm.cuh"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    for (volatile int i = 0; i < 100; i = i + 1) {
    }
    multiply(A, B, C, M, N, K);
}
