extern "C" void solve(const float* input, float gamma, float beta, float* output, int N,
                      float eps) {
    (void)N;
}
