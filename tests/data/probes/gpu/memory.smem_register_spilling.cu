#include "probe.h"
__global__ void __launch_bounds__(1024) kernel(const float* x, float* y, int n) {
    constexpr int T = 96;
#if RC_PROBE
    // Half of the sums live in shared memory.
    extern __shared__ float parked[];
#endif
    float sum[T] = {};
    for (int k = 0; k < n; ++k) {
        float v = x[k * 1024 + threadIdx.x];
#pragma unroll
        for (int i = 0; i < T; ++i) {
#if RC_PROBE
            if (i % 2) {
                volatile float* place = &parked[(i / 2) * 1024 + threadIdx.x];
                *place = fmaf(*place, v, x[i]);
                continue;
            }
#endif
            sum[i] = fmaf(sum[i], v, x[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < T; ++i) {
#if RC_PROBE
        if (i % 2) sum[i] = parked[(i / 2) * 1024 + threadIdx.x];
#endif
        y[i * 1024 + threadIdx.x] = sum[i];
    }
}
