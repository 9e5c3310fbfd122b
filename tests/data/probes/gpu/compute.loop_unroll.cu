#include "probe.h"
__global__ void kernel(const float* x, float* y, int n) {
    float sum = 0;
#if RC_PROBE
#pragma unroll 16
#else
#pragma unroll 1
#endif
    for (int i = 0; i < n; ++i) sum = sum * x[i] + x[i];
    y[threadIdx.x] = sum;
}
