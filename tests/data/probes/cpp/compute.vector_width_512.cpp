// flags: -mavx512f
#include <immintrin.h>
extern "C" void solve(const float* a, const float* b, float* c, int n) {
#if RC_PROBE
    for (int i = 0; i + 16 <= n; i += 16)
        _mm512_storeu_ps(c + i, _mm512_mul_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i)));
#else
    for (int i = 0; i + 8 <= n; i += 8)
        _mm256_storeu_ps(c + i, _mm256_mul_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
#endif
}
