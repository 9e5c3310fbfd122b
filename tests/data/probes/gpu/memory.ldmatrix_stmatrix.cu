#include "probe.h"
__global__ void kernel(const unsigned* x, float* y) {
    __shared__ unsigned tile[256];
    for (int i = 0; i < 8; ++i) tile[32 * i + threadIdx.x] = x[32 * i + threadIdx.x];
    __syncthreads();
    unsigned a[4], b[2] = {x[0], x[1]};
#if RC_PROBE
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(shared_address(&tile[4 * threadIdx.x])));
#else
    for (int i = 0; i < 4; ++i) a[i] = tile[8 * (threadIdx.x / 4) + 64 * (i % 2) + threadIdx.x % 4 + 4 * (i / 2)];
#endif
    float sum[4] = {};
    mma_f16(sum, a, b);
    for (int i = 0; i < 4; ++i) y[4 * threadIdx.x + i] = sum[i];
}
