#include "probe.h"
#if RC_PROBE
__global__ void kernel(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, int n) {
#else
__global__ void kernel(const float* x, const float* w, float* y, int n) {
#endif
    for (int i = 0; i < n; ++i) y[i * 32 + threadIdx.x] = x[i * 32 + threadIdx.x] * w[threadIdx.x];
}
