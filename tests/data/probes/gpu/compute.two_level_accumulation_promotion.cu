#include "probe.h"
__global__ void kernel(float* c, int n) {
#if __CUDA_ARCH_FEAT_SM90_ALL
    float sum[8] = {}, part[8] = {};
    for (int k = 0; k < n; ++k) {
#if RC_PROBE
        for (float& p : part) p = 0;
        wgmma_begin();
        for (int i = 0; i < 4; ++i) wgmma_e4m3(part, k + i, k + i);
        wgmma_commit();
        wgmma_wait<0>(part);
        for (int i = 0; i < 8; ++i) sum[i] += part[i];
#else
        wgmma_begin();
        for (int i = 0; i < 4; ++i) wgmma_e4m3(sum, k + i, k + i);
        wgmma_commit();
        wgmma_wait<0>(sum);
#endif
    }
#elif __CUDA_ARCH__ >= 1200
    float sum[8] = {}, part[4] = {};
    unsigned a[4] = {1, 2, 3, 4};
    for (int k = 0; k < n; ++k) {
        for (int i = 0; i < 4; ++i) mma_e4m3(part, a, a);
#if RC_PROBE
        for (int i = 0; i < 4; ++i) sum[i] += part[i], part[i] = 0;
#endif
    }
    for (int i = 0; i < 4; ++i) sum[i] += part[i];
#else
    float sum[8] = {}, part[4];
    for (int k = 0; k < n; ++k) {
        for (int i = 0; i < 4; ++i) tcgen05_fp8(0, k + i, k + i, 7);
#if RC_PROBE
        tcgen05_load(part, 0);
        for (int i = 0; i < 4; ++i) sum[i] += part[i];
#endif
    }
    tcgen05_load(part, 0);
    for (int i = 0; i < 4; ++i) sum[i] += part[i];
#endif
    for (int i = 0; i < 8; ++i) c[8 * threadIdx.x + i] = sum[i];
}
