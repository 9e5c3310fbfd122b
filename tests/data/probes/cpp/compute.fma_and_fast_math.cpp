// A polynomial whose steps are kept apart against the same in fused multiply-adds.
#include <immintrin.h>
extern "C" void solve(const float* x, float* y, int n) {
    for (int i = 0; i + 8 <= n; i += 8) {
        const __m256 v = _mm256_loadu_ps(x + i);
        __m256 p = _mm256_set1_ps(0.25f);
        for (int degree = 0; degree < 4; ++degree) {
#if RC_PROBE
            p = _mm256_fmadd_ps(p, v, _mm256_set1_ps(0.5f));
#else
            p = _mm256_mul_ps(p, v);
            asm("" : "+x"(p));  // keeps the compiler from contracting the two
            p = _mm256_add_ps(p, _mm256_set1_ps(0.5f));
#endif
        }
        _mm256_storeu_ps(y + i, p);
    }
}
