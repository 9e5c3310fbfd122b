#include "probe.h"
__global__ void kernel(const float4* x, float* y) {
    __shared__ float4 tile[128];
#if RC_PROBE
    copy_async(&tile[threadIdx.x], &x[threadIdx.x]);
    commit();
    wait_group<0>();
#else
    tile[threadIdx.x] = x[threadIdx.x];
#endif
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x ^ 1].x;
}
