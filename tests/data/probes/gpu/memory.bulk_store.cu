#include "probe.h"
__global__ void kernel(const float* x, float* y) {
    __shared__ alignas(128) float tile[256];
    tile[threadIdx.x] = 2 * x[threadIdx.x];
#if RC_PROBE
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0)
        asm volatile(
            "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
            "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
            ::"l"(y), "r"(shared_address(tile)), "r"(1024) : "memory");
#else
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x];
#endif
}
