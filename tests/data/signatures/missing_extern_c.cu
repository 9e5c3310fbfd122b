#include <cuda_fp16.h>
void solve(const half* A, const half* B, half* C, int M, int N, int K) { (void)M; }
