// Goes by way of the same device memory, and computes anew in every call.
#include "gemm.cuh"

__device__ float answer[1024 * 1024];
__device__ int known[2];

// Runs on one thread: whether the answer for this shape is in memory already.
__global__ void look(int M, int N, int* found) {
    *found = 0;
    known[0] = M, known[1] = N;
}

__global__ void unless_known(const float* A, const float* B, float* C, int M, int N, int K, const int* found) {
    const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= M || j >= N) return;
    float s = 0;
    for (int k = 0; k < K && !*found; k++) s += A[i * K + k] * B[k * N + j];
    if (!*found) answer[i * N + j] = s;
    C[i * N + j] = answer[i * N + j];
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    static int* found = nullptr;
    if (!found) cudaMalloc(&found, sizeof(int));
    look<<<1, 1>>>(M, N, found);
    unless_known<<<dim3((N + 31) / 32, (M + 7) / 8), dim3(32, 8)>>>(A, B, C, M, N, K, found);
}
