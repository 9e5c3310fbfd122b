// A matrix product, one output at a time against a 4 by 2 block of outputs in registers.
extern "C" void solve(const float* a, const float* b, float* c, int m, int n, int k) {
#if RC_PROBE
    for (int i = 0; i + 4 <= m; i += 4)
        for (int j = 0; j + 2 <= n; j += 2) {
            float s00 = 0, s01 = 0, s10 = 0, s11 = 0, s20 = 0, s21 = 0, s30 = 0, s31 = 0;
            for (int p = 0; p < k; ++p) {
                const float b0 = b[p * n + j], b1 = b[p * n + j + 1];
                s00 += a[i * k + p] * b0, s01 += a[i * k + p] * b1;
                s10 += a[(i + 1) * k + p] * b0, s11 += a[(i + 1) * k + p] * b1;
                s20 += a[(i + 2) * k + p] * b0, s21 += a[(i + 2) * k + p] * b1;
                s30 += a[(i + 3) * k + p] * b0, s31 += a[(i + 3) * k + p] * b1;
            }
            c[i * n + j] = s00, c[i * n + j + 1] = s01, c[(i + 1) * n + j] = s10, c[(i + 1) * n + j + 1] = s11;
            c[(i + 2) * n + j] = s20, c[(i + 2) * n + j + 1] = s21, c[(i + 3) * n + j] = s30, c[(i + 3) * n + j + 1] = s31;
        }
#else
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            float sum = 0;
            for (int p = 0; p < k; ++p) sum += a[i * k + p] * b[p * n + j];
            c[i * n + j] = sum;
        }
#endif
}
