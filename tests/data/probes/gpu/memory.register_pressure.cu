#include "probe.h"
#if RC_PROBE
__global__ void kernel(const float* x, float* y, int n) {
    constexpr int T = 8;
#else
// 128 sums in the 64 registers that 1024 threads leave.
__global__ void __launch_bounds__(1024) kernel(const float* x, float* y, int n) {
    constexpr int T = 128;
#endif
    float sum[T] = {};
    for (int k = 0; k < n; ++k) {
        float v = x[k * 1024 + threadIdx.x];
#pragma unroll
        for (int i = 0; i < T; ++i) sum[i] = fmaf(sum[i], v, x[i]);
    }
#pragma unroll
    for (int i = 0; i < T; ++i) y[i * 1024 + threadIdx.x] = sum[i];
}
