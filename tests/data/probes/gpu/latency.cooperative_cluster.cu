#include "probe.h"
__global__ void kernel(float* x, float* y, int n) {
    x[blockIdx.x * 128 + threadIdx.x] += 1;
#if RC_PROBE && __CUDA_ARCH__ >= 900
    cluster_sync();
#elif RC_PROBE
    cooperative_groups::this_grid().sync();
#else
    __syncthreads();
#endif
    y[blockIdx.x * 128 + threadIdx.x] = x[(blockIdx.x ^ 1) * 128 + threadIdx.x];
}
