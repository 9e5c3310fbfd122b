// Is still at work on the device after it returned.
#include "gemm.cuh"

__global__ void late(float* C) {
    for (int i = 0; i < 2; i++) __nanosleep(50000);
    (void)C;
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    static cudaStream_t stream = nullptr;
    if (!stream) cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    multiply(A, B, C, M, N, K);
    late<<<1, 1, 0, stream>>>(C);
}
