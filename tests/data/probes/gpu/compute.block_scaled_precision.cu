#include "probe.h"
__global__ void kernel(float* c, int n) {
    float sum[4] = {};
    unsigned a[4] = {1, 2, 3, 4};
    for (int i = 0; i < n; ++i) {
#if RC_PROBE && __CUDA_ARCH__ >= 1200
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0"
            " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, {%10}, {0, 0}, {%10}, {0, 0};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[0]), "r"(a[1]), "r"(i));
#elif RC_PROBE
        asm volatile(
            "{ .reg .pred p; setp.ne.u32 p, 1, 0;"
            "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [%0], %1, %2, %3, [%4], [%5], p; }"
            ::"r"(0), "l"(1ull * i), "l"(1ull * i), "r"(7), "r"(64), "r"(68) : "memory");
#elif __CUDA_ARCH__ >= 1200
        mma_e4m3(sum, a, a);
#else
        tcgen05_fp8(0, i, i, 7);
#endif
    }
    for (int i = 0; i < 4; ++i) c[4 * threadIdx.x + i] = sum[i];
}
