#include "probe.h"
// Eight 4-bit integers of a word to halves.
__global__ void kernel(const unsigned* x, __half2* y) {
    unsigned word = x[threadIdx.x];
#if RC_PROBE
    for (int i = 0; i < 4; ++i) {
        unsigned pair;
        asm("lop3.b32 %0, %1, 0x000f000f, 0x64006400, 0xea;" : "=r"(pair) : "r"(word >> 4 * i));
        y[4 * threadIdx.x + i] = __hsub2(*reinterpret_cast<__half2*>(&pair), __half2half2(__ushort_as_half(0x6408)));
    }
#else
    for (int i = 0; i < 4; ++i) {
        float low = static_cast<float>((word >> 4 * i) & 15) - 8, high = static_cast<float>((word >> (4 * i + 16)) & 15) - 8;
        y[4 * threadIdx.x + i] = __floats2half2_rn(low, high);
    }
#endif
}
