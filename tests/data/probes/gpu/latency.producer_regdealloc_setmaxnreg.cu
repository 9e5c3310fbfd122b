#include "probe.h"
__global__ void __launch_bounds__(256, 1) kernel(const float* x, float* y, int n) {
    __shared__ float tile[128];
    if (threadIdx.x < 128) {
#if RC_PROBE
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
#endif
        tile[threadIdx.x] = x[threadIdx.x];
        asm volatile("bar.arrive 1, 256;" ::: "memory");
    } else {
#if RC_PROBE
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
#endif
        asm volatile("bar.sync 1, 256;" ::: "memory");
        y[threadIdx.x] = tile[threadIdx.x & 127];
    }
}
