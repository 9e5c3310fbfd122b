// flags: -fopenmp
extern "C" void solve(const float* a, float* out, int n) {
#if RC_PROBE
#pragma omp parallel for schedule(static)
#endif
    for (int i = 0; i < n; ++i) out[i] = a[i] * 2.0f;
}
