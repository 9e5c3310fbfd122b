#include <immintrin.h>
extern "C" void solve(const float* a, float* out, int n) {
    for (int i = 0; i + 8 <= n; i += 8) {
        const __m256 v = _mm256_mul_ps(_mm256_loadu_ps(a + i), _mm256_set1_ps(2.0f));
#if RC_PROBE
        _mm256_stream_ps(out + i, v);
#else
        _mm256_storeu_ps(out + i, v);
#endif
    }
#if RC_PROBE
    _mm_sfence();
#endif
}
