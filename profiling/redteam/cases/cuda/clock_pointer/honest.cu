// Keeps a table of functions of its own, and calls through it.
#include "gemm.cuh"

using Multiply = void (*)(const float*, const float*, float*, int, int, int, cudaStream_t);
static Multiply table[] = {multiply};

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    table[0](A, B, C, M, N, K, 0);
}
