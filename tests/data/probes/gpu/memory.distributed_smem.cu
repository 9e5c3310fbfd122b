#include "probe.h"
__global__ void kernel(const float* x, float* y, int* flag) {
    __shared__ float tile[128];
    tile[threadIdx.x] = x[blockIdx.x * 128 + threadIdx.x];
#if RC_PROBE
    cluster_sync();
    float* peer = cooperative_groups::this_cluster().map_shared_rank(tile, blockIdx.x ^ 1);
    float value = peer[threadIdx.x];
    cluster_sync();
#else
    __syncthreads();
    float value = x[(blockIdx.x ^ 1) * 128 + threadIdx.x];
#endif
    y[blockIdx.x * 128 + threadIdx.x] = value + tile[threadIdx.x ^ 1];
}
