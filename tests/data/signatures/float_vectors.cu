#include <cuda_fp16.h>
__global__ void triad(const float4* __restrict__ a, half2* b, size_t n) { b[0].x = __float2half(a[n].x); }
extern "C" void solve(const float4* a, half2* b, size_t n) { triad<<<1, 1>>>(a, b, n); }
