#include <cuda_fp16.h>
extern "C" void solve(const __half* A, const __half* B, __half* C,
                      int M, int N, int K, float alpha, float beta) {
    (void)alpha;
}
