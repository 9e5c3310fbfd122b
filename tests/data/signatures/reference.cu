extern "C" void solve(const float* a, float* out, const int& n) { (void)n; }
