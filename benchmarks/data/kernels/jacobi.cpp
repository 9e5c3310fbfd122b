#ifndef RC_LOOP_INTERCHANGE
#define RC_LOOP_INTERCHANGE 1
#endif
#ifndef RC_BRANCH_ELIMINATE
#define RC_BRANCH_ELIMINATE 1
#endif
#ifndef RC_RECIPROCAL_MULTIPLY
#define RC_RECIPROCAL_MULTIPLY 1
#endif
#ifndef RC_SOFTWARE_PREFETCH
#define RC_SOFTWARE_PREFETCH 1
#endif

#if RC_RECIPROCAL_MULTIPLY
#define FIFTH(sum) ((sum) * 0.2f)
#else
#define FIFTH(sum) ((sum) / 5.0f)
#endif

#if RC_LOOP_INTERCHANGE
#define OVER_GRID(r0, r1, c0, c1)      \
    for (int r = (r0); r < (r1); ++r) \
        for (int c = (c0); c < (c1); ++c)
#define AHEAD(i) __builtin_prefetch(x + (i) + 2 * (long)cols, 0, 3)
#else
#define OVER_GRID(r0, r1, c0, c1)      \
    for (int c = (c0); c < (c1); ++c) \
        for (int r = (r0); r < (r1); ++r)
#define AHEAD(i) __builtin_prefetch(x + (i) + 4 * (long)cols, 0, 3)
#endif

extern "C" void solve(const float* x, float* y, int rows, int cols) {
#if RC_BRANCH_ELIMINATE
    for (int c = 0; c < cols; ++c) {
        y[c] = x[c];
        y[(long)(rows - 1) * cols + c] = x[(long)(rows - 1) * cols + c];
    }
    for (int r = 0; r < rows; ++r) {
        y[(long)r * cols] = x[(long)r * cols];
        y[(long)r * cols + cols - 1] = x[(long)r * cols + cols - 1];
    }
    OVER_GRID(1, rows - 1, 1, cols - 1) {
        long i = (long)r * cols + c;
#if RC_SOFTWARE_PREFETCH
        AHEAD(i);
#endif
        y[i] = FIFTH(x[i - cols] + x[i + cols] + x[i - 1] + x[i + 1] + x[i]);
    }
#else
    OVER_GRID(0, rows, 0, cols) {
        long i = (long)r * cols + c;
#if RC_SOFTWARE_PREFETCH
        AHEAD(i);
#endif
        if (r == 0 || c == 0 || r == rows - 1 || c == cols - 1) {
            y[i] = x[i];
        } else {
            y[i] = FIFTH(x[i - cols] + x[i + cols] + x[i - 1] + x[i + 1] + x[i]);
        }
    }
#endif
}
