#include "probe.h"
__global__ void kernel(const float* x, float* y) {
    __shared__ alignas(128) float tile[1024];
#if RC_PROBE
    __shared__ unsigned long long bar;
    if (threadIdx.x == 0) bar_init(&bar, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        bar_expect(&bar, sizeof(tile));
        bulk_load(tile, x, sizeof(tile), &bar);
    }
    bar_wait(&bar, 0);
#else
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) tile[i] = x[i];
    __syncthreads();
#endif
    y[threadIdx.x] = tile[threadIdx.x ^ 1];
}
