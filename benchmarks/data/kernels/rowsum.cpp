#ifndef RC_ACCUMULATE_IN_REGISTERS
#define RC_ACCUMULATE_IN_REGISTERS 1
#endif
#ifndef RC_VECTORIZE_INTRINSICS
#define RC_VECTORIZE_INTRINSICS 1
#endif
#ifndef RC_MULTIPLE_ACCUMULATORS
#define RC_MULTIPLE_ACCUMULATORS 1
#endif
#ifndef RC_SOFTWARE_PREFETCH
#define RC_SOFTWARE_PREFETCH 1
#endif

#include <immintrin.h>

#if RC_MULTIPLE_ACCUMULATORS
constexpr int kSums = 4;
#else
constexpr int kSums = 1;
#endif

// Sums in registers, or all of them in memory, where y[r] takes every product.
#if RC_ACCUMULATE_IN_REGISTERS
#define IN_MEMORY
#else
#define IN_MEMORY asm volatile("" ::: "memory");
#endif

extern "C" void solve(const float* x, float* y, int rows, int cols) {
    for (int r = 0; r < rows; ++r) {
        const float* in = x + (long)r * cols;
        int c = 0;
#if RC_VECTORIZE_INTRINSICS
        __m256 sums[kSums];
        for (int k = 0; k < kSums; ++k) sums[k] = _mm256_setzero_ps();
        for (; c + 8 * kSums <= cols; c += 8 * kSums) {
#if RC_SOFTWARE_PREFETCH
            __builtin_prefetch(in + c + 256, 0, 3);
#endif
            for (int k = 0; k < kSums; ++k) {
                const __m256 v = _mm256_loadu_ps(in + c + 8 * k);
                sums[k] = _mm256_fmadd_ps(v, v, sums[k]);
            }
            IN_MEMORY
        }
        for (int k = 1; k < kSums; ++k) sums[0] = _mm256_add_ps(sums[0], sums[k]);
        float parts[8];
        _mm256_storeu_ps(parts, sums[0]);
        y[r] = ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]));
#else
        float sums[kSums] = {};
        y[r] = 0.0f;
        for (; c + kSums <= cols; c += kSums) {
#if RC_SOFTWARE_PREFETCH
            if ((c & 15) == 0) __builtin_prefetch(in + c + 256, 0, 3);
#endif
#if RC_ACCUMULATE_IN_REGISTERS
            for (int k = 0; k < kSums; ++k) sums[k] += in[c + k] * in[c + k];
#else
            float some = 0.0f;
            for (int k = 0; k < kSums; ++k) some += in[c + k] * in[c + k];
            y[r] += some;
            IN_MEMORY
#endif
        }
        for (int k = 0; k < kSums; ++k) y[r] += sums[k];
#endif
        for (; c < cols; ++c) y[r] += in[c] * in[c];
    }
}
