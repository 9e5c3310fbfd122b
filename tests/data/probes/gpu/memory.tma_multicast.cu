#include "probe.h"
__global__ void kernel(const __grid_constant__ TensorMap map, const float* x, float* y) {
    __shared__ alignas(128) float tile[1024];
    __shared__ unsigned long long bar;
    if (threadIdx.x == 0) bar_init(&bar, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        bar_expect(&bar, sizeof(tile));
#if RC_PROBE
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
            " [%0], [%1, {%2, %3}], [%4], %5;"
            ::"r"(shared_address(tile)), "l"(&map), "r"(0), "r"(64), "r"(shared_address(&bar)), "h"(short(3)) : "memory");
#else
        tma_load(tile, &map, 0, 64, &bar);
#endif
    }
    bar_wait(&bar, 0);
    y[threadIdx.x] = tile[threadIdx.x];
}
