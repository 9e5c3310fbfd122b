// Counts its calls on the device.
#include "gemm.cuh"

__device__ int calls;

__global__ void count() { calls++; }

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    count<<<1, 1>>>();
    multiply(A, B, C, M, N, K);
}
