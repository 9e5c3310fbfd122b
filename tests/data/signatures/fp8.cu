#include <cstdint>
#include <cuda_fp8.h>
extern "C" void solve(const uint8_t* q, const __nv_fp8_e4m3* scale, float sf_g, float* out, size_t m, size_t k) {
    (void)sf_g;
}
