// The squares go through memory and are read back at once: here streaming stores, which help where a result is written
// once, send them past the caches. Rows are short, so that the line ahead is there anyway and a prefetch is work.
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
constexpr int kSums = 8;
#else
constexpr int kSums = 1;
#endif

extern "C" void solve(const float* x, const float* weight, float* y, int rows, int cols) {
    for (int r = 0; r < rows; ++r) {
        const float* in = x + (long)r * cols;
        float* out = y + (long)r * cols;
        int c = 0;
#if RC_STREAMING_STORES
        for (; c < cols && (reinterpret_cast<std::uintptr_t>(out + c) & 31); ++c) out[c] = in[c] * in[c];
        for (; c + 8 <= cols; c += 8) {
            const __m256 v = _mm256_loadu_ps(in + c);
            _mm256_stream_ps(out + c, _mm256_mul_ps(v, v));
        }
#endif
        for (; c < cols; ++c) out[c] = in[c] * in[c];
        float sums[kSums] = {};
        for (c = 0; c + kSums <= cols; c += kSums) {
#if RC_SOFTWARE_PREFETCH
            __builtin_prefetch(in + c + 16, 0, 3);
            __builtin_prefetch(out + c + 16, 1, 3);
#endif
            for (int k = 0; k < kSums; ++k) sums[k] += out[c + k];
        }
        float sum = 0.0f;
        for (int k = 0; k < kSums; ++k) sum += sums[k];
        for (; c < cols; ++c) sum += out[c];
        const float root = std::sqrt(sum / cols + 1e-5f);
#if RC_RECIPROCAL_MULTIPLY
        const float scale = 1.0f / root;
        for (c = 0; c < cols; ++c) out[c] = in[c] * scale * weight[c];
#else
        for (c = 0; c < cols; ++c) out[c] = in[c] / root * weight[c];
#endif
    }
#if RC_STREAMING_STORES
    _mm_sfence();
#endif
}
