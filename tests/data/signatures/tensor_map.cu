#include <cuda.h>
extern "C" void solve(const float* a, float* out, const CUtensorMap map) { (void)a; }
