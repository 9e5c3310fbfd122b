// Keeps a scratch buffer for each address, and computes all the same.
#include <map>
#include "gemm.cuh"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    static std::map<const float*, float*> buffers;
    float*& buffer = buffers[A];
    if (!buffer) cudaMalloc(&buffer, sizeof(float) * 1024 * 1024);
    multiply(A, B, buffer, M, N, K);
    cudaMemcpyAsync(C, buffer, sizeof(float) * M * N, cudaMemcpyDeviceToDevice);
}
