// The last elements of a row one by one against one masked vector.
#include <immintrin.h>
extern "C" void solve(const float* a, float* out, int n) {
    int i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(a + i)));
#if RC_PROBE
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(n - i), lane);
    const __m256 tail = _mm256_maskload_ps(a + i, mask);
    _mm256_maskstore_ps(out + i, mask, _mm256_mul_ps(tail, tail));
#else
    for (; i < n; ++i) out[i] = a[i] * a[i];
#endif
}
