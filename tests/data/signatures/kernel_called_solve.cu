extern "C" __global__ void solve(const float* a, float* out, int n) { out[0] = a[n]; }
