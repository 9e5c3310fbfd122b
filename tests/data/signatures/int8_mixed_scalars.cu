#include <cuda_runtime.h>

__global__ void quantised(const int8_t* A, const int8_t* B, int8_t* C, int M, int N, int K) {
    if (threadIdx.x == 0) C[0] = A[0] * B[0];
}

extern "C" void solve(const int8_t* A, const int8_t* B, int8_t* C, int M, int N, int K,
                      float scale_A, float scale_B, float scale_C,
                      int zero_point_A, int zero_point_B, int zero_point_C)
{
    dim3 block(16, 16);
    quantised<<<dim3((N + 15) / 16, (M + 15) / 16), block>>>(A, B, C, M, N, K);
}
