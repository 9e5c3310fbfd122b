#include "probe.h"
DEVICE float pipe(float x) {
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x));
    return e;
}
DEVICE float polynomial(float x) {
    float whole = floorf(x), f = x - whole;
    float e = fmaf(fmaf(fmaf(0.0790f, f, 0.2243f), f, 0.6965f), f, 1.0f);
    return __int_as_float(__float_as_int(e) + (static_cast<int>(whole) << 23));
}
__global__ void kernel(const float* x, float* y, int n) {
    for (int i = threadIdx.x; i < n; i += 4 * blockDim.x) {
        for (int j = 0; j < 3; ++j) y[i + j] = pipe(x[i + j]);
#if RC_PROBE
        y[i + 3] = polynomial(x[i + 3]);
#else
        y[i + 3] = pipe(x[i + 3]);
#endif
    }
}
