#include "probe.h"
DEVICE unsigned high(float x) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}
__global__ void kernel(const float* a, const float* b, float* c, int n) {
    int lane = threadIdx.x;
    float sum[4] = {};
    for (int k = 0; k < n; k += 8) {
#if RC_PROBE
        unsigned big[6], small[6];
        for (int i = 0; i < 6; ++i) {
            float x = i < 4 ? a[4 * lane + i + k] : b[2 * lane + i - 4 + k];
            big[i] = high(x);
            small[i] = high(x - __uint_as_float(big[i]));
        }
        mma_tf32(sum, big, small + 4);
        mma_tf32(sum, small, big + 4);
        mma_tf32(sum, big, big + 4);
#else
        for (int i = 0; i < 4; ++i) sum[i] += a[4 * lane + i + k] * b[2 * lane + i + k];
#endif
    }
    for (int i = 0; i < 4; ++i) c[4 * lane + i] = sum[i];
}
