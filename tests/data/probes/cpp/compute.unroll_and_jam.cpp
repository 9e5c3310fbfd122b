// A matrix-vector product, one row at a time against four rows side by side.
extern "C" void solve(const float* a, const float* x, float* y, int m, int n) {
    int i = 0;
#if RC_PROBE
    for (; i + 4 <= m; i += 4) {
        float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        for (int j = 0; j < n; ++j) {
            const float v = x[j];
            s0 += a[i * n + j] * v;
            s1 += a[(i + 1) * n + j] * v;
            s2 += a[(i + 2) * n + j] * v;
            s3 += a[(i + 3) * n + j] * v;
        }
        y[i] = s0, y[i + 1] = s1, y[i + 2] = s2, y[i + 3] = s3;
    }
#endif
    for (; i < m; ++i) {
        float sum = 0;
        for (int j = 0; j < n; ++j) sum += a[i * n + j] * x[j];
        y[i] = sum;
    }
}
