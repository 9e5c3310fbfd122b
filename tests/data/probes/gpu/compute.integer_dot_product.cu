#include "probe.h"
__global__ void kernel(const int* x, const int* w, int* y, int n) {
    int sum = 0;
    for (int i = 0; i < n; ++i) {
        int a = x[i * 32 + threadIdx.x], b = w[i];
#if RC_PROBE
        sum = __dp4a(a, b, sum);
#else
        for (int j = 0; j < 32; j += 8) sum += static_cast<signed char>(a >> j) * static_cast<signed char>(b >> j);
#endif
    }
    y[threadIdx.x] = sum;
}
