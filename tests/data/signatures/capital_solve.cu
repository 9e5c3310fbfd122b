#include <cuda_fp16.h>
void Solve(const half* A, const half* B, half* C, int M, int N, int K) { (void)M; }
