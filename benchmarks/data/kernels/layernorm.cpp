#ifndef RC_VECTORIZE_INTRINSICS
#define RC_VECTORIZE_INTRINSICS 1
#endif
#ifndef RC_MULTIPLE_ACCUMULATORS
#define RC_MULTIPLE_ACCUMULATORS 1
#endif
#ifndef RC_RECIPROCAL_MULTIPLY
#define RC_RECIPROCAL_MULTIPLY 1
#endif
#ifndef RC_STREAMING_STORES
#define RC_STREAMING_STORES 1
#endif
#ifndef RC_SOFTWARE_PREFETCH
#define RC_SOFTWARE_PREFETCH 1
#endif

#include <cmath>
#include <cstdint>
#include <immintrin.h>

#if RC_MULTIPLE_ACCUMULATORS
constexpr int kSums = 4;
#else
constexpr int kSums = 1;
#endif

#if RC_VECTORIZE_INTRINSICS
static inline float lanes(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
#endif

// The sum of (in[c] - shift)^power.
template <int power>
static inline float total(const float* in, int cols, float shift, const float* next) {
    int c = 0;
    float sum = 0.0f;
    (void)next;
#if RC_VECTORIZE_INTRINSICS
    __m256 sums[kSums];
    for (int k = 0; k < kSums; ++k) sums[k] = _mm256_setzero_ps();
    for (; c + 8 * kSums <= cols; c += 8 * kSums) {
#if RC_SOFTWARE_PREFETCH
        if (power == 1) __builtin_prefetch(next + c, 0, 3);
#endif
        for (int k = 0; k < kSums; ++k) {
            const __m256 d = _mm256_sub_ps(_mm256_loadu_ps(in + c + 8 * k), _mm256_set1_ps(shift));
            sums[k] = power == 1 ? _mm256_add_ps(sums[k], d) : _mm256_fmadd_ps(d, d, sums[k]);
        }
    }
    for (int k = 1; k < kSums; ++k) sums[0] = _mm256_add_ps(sums[0], sums[k]);
    sum = lanes(sums[0]);
#else
    float sums[kSums] = {};
    for (; c + kSums <= cols; c += kSums) {
#if RC_SOFTWARE_PREFETCH
        if (power == 1 && (c & 15) == 0) __builtin_prefetch(next + c, 0, 3);
#endif
        for (int k = 0; k < kSums; ++k) {
            const float d = in[c + k] - shift;
            sums[k] += power == 1 ? d : d * d;
        }
    }
    for (int k = 0; k < kSums; ++k) sum += sums[k];
#endif
    for (; c < cols; ++c) {
        const float d = in[c] - shift;
        sum += power == 1 ? d : d * d;
    }
    return sum;
}

extern "C" void solve(const float* x, const float* weight, const float* bias, float* y, int rows, int cols) {
    for (int r = 0; r < rows; ++r) {
        const float* in = x + (long)r * cols;
        float* out = y + (long)r * cols;
        const float* next = r + 1 < rows ? in + cols : in;
        const float mean = total<1>(in, cols, 0.0f, next) / cols;
        const float deviation = std::sqrt(total<2>(in, cols, mean, next) / cols + 1e-5f);
        int c = 0;
#if RC_RECIPROCAL_MULTIPLY
        const float scale = 1.0f / deviation;
#define NORMALISED(value) (((value) - mean) * scale)
#else
#define NORMALISED(value) (((value) - mean) / deviation)
#endif
#if RC_STREAMING_STORES
        for (; c < cols && (reinterpret_cast<std::uintptr_t>(out + c) & 31); ++c) {
            out[c] = NORMALISED(in[c]) * weight[c] + bias[c];
        }
        for (; c + 8 <= cols; c += 8) {
            const __m256 d = _mm256_sub_ps(_mm256_loadu_ps(in + c), _mm256_set1_ps(mean));
#if RC_RECIPROCAL_MULTIPLY
            const __m256 n = _mm256_mul_ps(d, _mm256_set1_ps(scale));
#else
            const __m256 n = _mm256_div_ps(d, _mm256_set1_ps(deviation));
#endif
            _mm256_stream_ps(out + c, _mm256_fmadd_ps(n, _mm256_loadu_ps(weight + c), _mm256_loadu_ps(bias + c)));
        }
#endif
        for (; c < cols; ++c) out[c] = NORMALISED(in[c]) * weight[c] + bias[c];
    }
#if RC_STREAMING_STORES
    _mm_sfence();
#endif
}
