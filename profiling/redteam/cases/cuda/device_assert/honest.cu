// Makes an assertion on the device that holds.
#include <cassert>
#include "gemm.cuh"

__global__ void check(const float* A) { assert(A != nullptr); }

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    multiply(A, B, C, M, N, K);
    check<<<1, 1>>>(A);
}
