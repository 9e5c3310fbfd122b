#include "probe.h"
__global__ void kernel(const float* x, float* y, int n) {
#if RC_PROBE
    constexpr int T = 4;
#else
    constexpr int T = 1;
#endif
    float sum[T] = {};
    for (int i = threadIdx.x; i < n; i += T * 256)
        for (int j = 0; j < T; ++j) sum[j] += x[i + j * 256];
    for (int j = 1; j < T; ++j) sum[0] += sum[j];
    y[threadIdx.x] = sum[0];
}
