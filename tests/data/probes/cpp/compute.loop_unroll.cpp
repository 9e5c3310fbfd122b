// A sum in one chain, one element per iteration against eight.
extern "C" void solve(const float* a, float* out, int n) {
    float sum = 0;
#if RC_PROBE
#pragma GCC unroll 8
#else
#pragma GCC unroll 1
#endif
    for (int i = 0; i < (n & ~7); ++i) sum += a[i];
    *out = sum;
}
