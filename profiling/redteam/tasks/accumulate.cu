#include "accumulate.cuh"
extern "C" void solve(const float* x, float* y, int n) { accumulate(x, y, n); }
