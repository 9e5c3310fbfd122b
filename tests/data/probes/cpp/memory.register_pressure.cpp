// Twenty vector sums, more than there are registers, against eight.
#include <immintrin.h>
#if RC_PROBE
constexpr int kSums = 8;
#else
constexpr int kSums = 20;
#endif
extern "C" void solve(const float* a, const float* b, float* out, int n) {
    __m256 sum[kSums];
    for (int s = 0; s < kSums; ++s) sum[s] = _mm256_setzero_ps();
    for (int i = 0; i < n; ++i) {
        const __m256 v = _mm256_loadu_ps(b + 8 * i);
#pragma GCC unroll 32
        for (int s = 0; s < kSums; ++s) sum[s] = _mm256_fmadd_ps(v, _mm256_broadcast_ss(a + kSums * i + s), sum[s]);
    }
    for (int s = 0; s < kSums; ++s) _mm256_storeu_ps(out + 8 * s, sum[s]);
}
