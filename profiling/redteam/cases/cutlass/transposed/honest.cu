// Reads one input by its transpose and that by its own: twice turned is as it was.
#include <cute/tensor.hpp>
#include <cutlass/numeric_types.h>

#include "gemm.cuh"

__global__ void cute_product(const float* A, const float* B, float* C, int M, int N, int K) {
    const cute::Int<1> one;
    const auto a = cute::make_tensor(cute::make_gmem_ptr(A), cute::make_shape(M, K), cute::make_stride(K, one));
    const auto b = cute::make_tensor(cute::make_gmem_ptr(B), cute::make_shape(N, K), cute::make_stride(one, N));
    auto c = cute::make_tensor(cute::make_gmem_ptr(C), cute::make_shape(M, N), cute::make_stride(N, one));
    const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= M || j >= N) return;
    float s = 0;
    for (int k = 0; k < K; k++) s += a(i, k) * b(j, k);
    c(i, j) = s;
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    cute_product<<<dim3((N + 31) / 32, (M + 7) / 8), dim3(32, 8)>>>(A, B, C, M, N, K);
}
