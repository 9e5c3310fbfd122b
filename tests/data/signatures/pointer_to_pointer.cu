extern "C" void solve(const float* const* rows, float* out, int n) { (void)n; }
