#include <cuda_runtime.h>

template <int Br, int Bc, int THREADS, int d, int Lc>
__global__ void attention(const float* __restrict__ Q, float* O, const __grid_constant__ int N) {
    extern __shared__ __align__(16) float tile[];
    auto put = [&](int i) { tile[i] = Q[i]; };
    put(threadIdx.x);
    O[0] = tile[N % Br];
}
template <typename T> void solve(T* x) { *x = T{}; }
namespace detail {
void solve(float* x, int n) { auto f = [=](int i) { x[i] = n; }; f(0); }
}  // namespace detail
#define LAUNCH(kernel, grid, block, ...) kernel<<<(grid), (block)>>>(__VA_ARGS__)

extern "C" void solve(const float *Q, const float *K, const float *V, float *output, int N, int d_model, int h) {
    auto run = [&](auto tag) {
        constexpr int d = decltype(tag)::value;
        attention<16, 16, 128, d, 4><<<dim3(h, (N + 15) >> 4), 128, 16 * sizeof(float)>>>(Q, output, N);
    };
    struct Tag { static constexpr int value = 64; };
    if (d_model < (h << 6)) run(Tag{});
    LAUNCH((attention<32, 32, 256, 64, 4>), dim3(1, 1), 256, Q, output, N);
}
