#include "probe.h"
__global__ void kernel(int n) {
    for (int i = 0; i < n; ++i) {
#if RC_PROBE
        asm volatile(
            "{ .reg .pred p; setp.ne.u32 p, 1, 0; tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, p; }"
            ::"r"(0), "l"(1ull * i), "l"(1ull * i), "r"(7) : "memory");
#else
        tcgen05_f16(0, i, i, 7);
#endif
    }
}
