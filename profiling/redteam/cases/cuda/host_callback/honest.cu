// Is told by a callback when its stream is done.
#include <atomic>
#include "gemm.cuh"

static std::atomic<int> done;

static void count(void*) {
    done++;
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    multiply(A, B, C, M, N, K);
    cudaLaunchHostFunc(0, count, nullptr);
}
