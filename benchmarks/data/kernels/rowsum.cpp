#ifndef RC_VECTORIZE_INTRINSICS
#define RC_VECTORIZE_INTRINSICS 1
#endif
#ifndef RC_MULTIPLE_ACCUMULATORS
#define RC_MULTIPLE_ACCUMULATORS 1
#endif
#ifndef RC_SOFTWARE_PREFETCH
#define RC_SOFTWARE_PREFETCH 1
#endif
#ifndef RC_LOOP_UNROLL
#define RC_LOOP_UNROLL 1
#endif

#if RC_VECTORIZE_INTRINSICS
#include <immintrin.h>
#endif

#if RC_MULTIPLE_ACCUMULATORS
constexpr int kSums = 4;
#else
constexpr int kSums = 1;
#endif
#if RC_VECTORIZE_INTRINSICS
constexpr int kWidth = 8;
#else
constexpr int kWidth = 1;
#endif
#if RC_LOOP_UNROLL
constexpr int kTurns = 4;
#else
constexpr int kTurns = 1;
#endif
constexpr int kStep = kWidth * kSums * kTurns;

extern "C" void solve(const float* x, float* y, int rows, int cols) {
    for (int r = 0; r < rows; ++r) {
        const float* in = x + (long)r * cols;
        int c = 0;
#if RC_VECTORIZE_INTRINSICS
        __m256 sums[kSums];
        for (int k = 0; k < kSums; ++k) sums[k] = _mm256_setzero_ps();
#else
        float sums[kSums] = {};
#endif
        for (; c + kStep <= cols; c += kStep) {
#if RC_SOFTWARE_PREFETCH
            if (kStep >= 16 || c % 16 == 0) __builtin_prefetch(in + c + 512, 0, 3);
#endif
            for (int turn = 0; turn < kTurns; ++turn) {
                for (int k = 0; k < kSums; ++k) {
                    const float* at = in + c + (turn * kSums + k) * kWidth;
#if RC_VECTORIZE_INTRINSICS
                    const __m256 v = _mm256_loadu_ps(at);
                    sums[k] = _mm256_fmadd_ps(v, v, sums[k]);
#else
                    sums[k] += *at * *at;
#endif
                }
            }
        }
        float sum = 0.0f;
        for (int k = 0; k < kSums; ++k) {
#if RC_VECTORIZE_INTRINSICS
            float parts[8];
            _mm256_storeu_ps(parts, sums[k]);
            for (int lane = 0; lane < 8; ++lane) sum += parts[lane];
#else
            sum += sums[k];
#endif
        }
        for (; c < cols; ++c) sum += in[c] * in[c];
        y[r] = sum;
    }
}
