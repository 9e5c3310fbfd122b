#include "probe.h"
__global__ void kernel(const __half* x, __half* y, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
#if RC_PROBE
        const __half2* from = reinterpret_cast<const __half2*>(x);
        reinterpret_cast<__half2*>(y)[i] = __hfma2(from[i], from[i], from[i + n]);
#else
        y[i] = __hfma(x[i], x[i], x[i + n]);
#endif
    }
}
