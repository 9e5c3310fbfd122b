#include "probe.h"
__global__ void kernel(const __half* a, const __half* b, float* c, int k) {
    int lane = threadIdx.x;
#if RC_PROBE
    float sum[8] = {};
#if __CUDA_ARCH_FEAT_SM90_ALL
    wgmma_begin();
    for (int i = 0; i < k; ++i) wgmma_f16(sum, i, i);
    wgmma_commit();
    wgmma_wait<0>(sum);
#elif __CUDA_ARCH_FEAT_SM100_ALL
    for (int i = 0; i < k; ++i) tcgen05_f16(0, i, i, 7);
#else
    for (int i = 0; i < k; i += 16)
        mma_f16(sum, reinterpret_cast<const unsigned*>(a + i) + 4 * lane, reinterpret_cast<const unsigned*>(b + i) + 2 * lane);
#endif
    for (int i = 0; i < 8; ++i) c[8 * lane + i] = sum[i];
#else
    float sum = 0;
    for (int i = 0; i < k; ++i) sum += __half2float(a[lane * k + i]) * __half2float(b[lane * k + i]);
    c[lane] = sum;
#endif
}
