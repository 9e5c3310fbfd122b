// Launches from a thread, and waits for it.
#include <thread>
#include "gemm.cuh"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    std::thread([=] { multiply(A, B, C, M, N, K); }).join();
}
