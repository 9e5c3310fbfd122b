#include <cuda_runtime.h>

__global__ void scatter(const float* x, const int* expert, float* y, int* counts, int T, int D) {
    int t = blockIdx.x;
    if (t < T && threadIdx.x == 0) atomicAdd(&counts[expert[t]], 1);
    for (int d = threadIdx.x; d < D; d += blockDim.x) y[t * D + d] = x[t * D + d];
}

extern "C" void solve(const float* x,        // [T, D]
                      const int* expert_idx, // [T]
                      float* dispatched_x,   // [E, capacity, D]
                      int* token_counts,     /* [E] ) { */
                      int T, int D, int E, int capacity) {
    scatter<<<T, 128>>>(x, expert_idx, dispatched_x, token_counts, T, D);
}
