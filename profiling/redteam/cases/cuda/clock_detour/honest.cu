// Reads the code of the driver's cuEventElapsedTime, and leaves it as it is.
#include "find_symbol.h"
#include "gemm.cuh"

static unsigned char first;

__attribute__((constructor)) static void look() {
    if (const void* code = find_symbol("libcuda.so", "cuEventElapsedTime")) memcpy(&first, code, 1);
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    multiply(A, B, C, M, N, K);
}
