#include <immintrin.h>
extern "C" void solve(const float* a, float* out, int n) {
    for (int i = 0; i + 8 <= n; i += 8) {
#if RC_PROBE
        _mm256_store_ps(out + i, _mm256_mul_ps(_mm256_load_ps(a + i), _mm256_set1_ps(2.0f)));
#else
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_loadu_ps(a + i), _mm256_set1_ps(2.0f)));
#endif
    }
}
