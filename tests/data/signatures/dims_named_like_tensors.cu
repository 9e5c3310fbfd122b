extern "C" void solve(const float* input, float* output, int N, int C,
                      int H, int W, int G, float eps) {
    (void)eps;
}
