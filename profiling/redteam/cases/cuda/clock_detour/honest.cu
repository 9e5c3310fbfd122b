// Times itself with events of its own.
#include "gemm.cuh"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    static cudaEvent_t begin = nullptr, end;
    if (!begin) cudaEventCreate(&begin), cudaEventCreate(&end);
    cudaEventRecord(begin);
    multiply(A, B, C, M, N, K);
    cudaEventRecord(end);
}
