// A column by gathers against rows by contiguous loads.
#include <immintrin.h>
extern "C" void solve(const float* a, float* out, int n) {
    const __m256i index = _mm256_setr_epi32(0, n, 2 * n, 3 * n, 4 * n, 5 * n, 6 * n, 7 * n);
    __m256 sum = _mm256_setzero_ps();
#if RC_PROBE
    for (int j = 0; j + 8 <= n; j += 8) sum = _mm256_add_ps(sum, _mm256_loadu_ps(a + j));
#else
    for (int j = 0; j + 8 <= n; ++j) sum = _mm256_add_ps(sum, _mm256_i32gather_ps(a + j, index, 4));
#endif
    _mm256_storeu_ps(out, _mm256_add_ps(sum, _mm256_cvtepi32_ps(index)));
}
