extern "C" float solve(const float* a, float* out, int n) { return a[n]; }
