#include <cstdint>

#include <cute/tensor.hpp>
#include <cutlass/fast_math.h>
#include <cutlass/functional.h>

// y[r,:] = softmax(x[r,:]), row-major, float32: one block per row, three passes over the row in global memory.
constexpr int kThreads = 256;

template <class Operator>
__device__ float reduce_over_block(float value, Operator combine) {
    __shared__ float storage[kThreads];
    auto partial = cute::make_tensor(cute::make_smem_ptr(&storage[0]), cute::make_layout(cute::Int<kThreads>{}));
    int thread = threadIdx.x;
    partial(thread) = value;
    __syncthreads();
    for (int offset = kThreads / 2; offset > 0; offset /= 2) {
        if (thread < offset) partial(thread) = combine(partial(thread), partial(thread + offset));
        __syncthreads();
    }
    float result = partial(0);
    __syncthreads();
    return result;
}

__global__ void softmax_rows(const float* x, float* y, int rows, int cols) {
    auto layout = cute::make_layout(cute::make_shape(rows, cols), cute::make_stride(int64_t(cols), cute::Int<1>{}));
    auto in = cute::make_tensor(cute::make_gmem_ptr(x), layout)(int(blockIdx.x), cute::_);
    auto out = cute::make_tensor(cute::make_gmem_ptr(y), layout)(int(blockIdx.x), cute::_);
    cutlass::maximum<float> larger;
    cutlass::plus<float> plus;

    float largest = in(0);
    for (int c = threadIdx.x; c < cols; c += kThreads) largest = larger(largest, in(c));
    largest = reduce_over_block(largest, larger);

    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += kThreads) sum = plus(sum, cutlass::fast_exp(in(c) - largest));
    sum = reduce_over_block(sum, plus);

    for (int c = threadIdx.x; c < cols; c += kThreads) out(c) = cutlass::fast_exp(in(c) - largest) / sum;
}

extern "C" void solve(const float* x, float* y, int rows, int cols) {
    softmax_rows<<<rows, kThreads>>>(x, y, rows, cols);
}
