extern "C" void solve(const float* a, float* out, float (*op)(float), int n) { (void)n; }
