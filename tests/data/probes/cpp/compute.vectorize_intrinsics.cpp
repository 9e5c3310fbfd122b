// A dot product: -O3 alone leaves a float reduction scalar.
#include <immintrin.h>
extern "C" void solve(const float* a, const float* b, float* out, int n) {
    float sum = 0;
    int i = 0;
#if RC_PROBE
    __m256 acc = _mm256_setzero_ps();
    for (; i + 8 <= n; i += 8) acc = _mm256_fmadd_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i), acc);
    float lane[8];
    _mm256_storeu_ps(lane, acc);
    for (float value : lane) sum += value;
#endif
    for (; i < n; ++i) sum += a[i] * b[i];
    *out = sum;
}
