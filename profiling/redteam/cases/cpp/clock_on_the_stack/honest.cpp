// Finds it there, and leaves it.
#include "stack_clock.h"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    multiply_seemingly(A, B, C, M, N, K, 100);
}
