// Keeps scratch memory between calls, not answers.
#include "gemm.cuh"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    static float* scratch = nullptr;
    static int elements = 0;
    if (elements != M * N) {
        cudaMalloc(&scratch, sizeof(float) * M * N);
        elements = M * N;
    }
    multiply(A, B, scratch, M, N, K);
    cudaMemcpyAsync(C, scratch, sizeof(float) * M * N, cudaMemcpyDeviceToDevice);
}
