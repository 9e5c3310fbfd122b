#include "probe.h"
__global__ void kernel(const __grid_constant__ TensorMap map, const float* x, float* y) {
    __shared__ alignas(128) float tile[1024];
    __shared__ unsigned long long bar;
    if (threadIdx.x == 0) bar_init(&bar, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        bar_expect(&bar, sizeof(tile));
#if RC_PROBE
        tma_load(tile, &map, 0, 64, &bar);
#else
        bulk_load(tile, x, sizeof(tile), &bar);
#endif
    }
    bar_wait(&bar, 0);
    y[threadIdx.x] = tile[threadIdx.x];
}
