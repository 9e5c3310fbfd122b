#include <cute/tensor.hpp>

#include <cute/atom/copy_atom.hpp>
#include <cute/atom/mma_atom.hpp>

// One 16x8 tile of a half-precision product by one warp: with CuTe's atoms, and with plain loads and multiplications.
using namespace cute;

__global__ void product_tile(const half_t* a, const half_t* b, float* c, int k) {
    int lane = threadIdx.x;
#if RC_PROBE
    __shared__ alignas(16) half_t left[16 * 16], right[8 * 16];
    auto sums = make_tensor<float>(Layout<Shape<_4>>{});
    clear(sums);
    for (int i = 0; i < k; i += 16) {
        SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>::copy(
            reinterpret_cast<const uint128_t*>(a + i * 16)[lane], reinterpret_cast<uint128_t*>(left)[lane]);
        if (lane < 16)
            SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>::copy(
                reinterpret_cast<const uint128_t*>(b + i * 8)[lane], reinterpret_cast<uint128_t*>(right)[lane]);
        cp_async_fence();
        cp_async_wait<0>();
        __syncthreads();
        uint32_t x[4], y[2];
        SM75_U32x4_LDSM_N::copy(reinterpret_cast<const uint128_t*>(left)[lane], x[0], x[1], x[2], x[3]);
        SM75_U32x2_LDSM_N::copy(reinterpret_cast<const uint128_t*>(right)[lane % 16], y[0], y[1]);
        SM80_16x8x16_F32F16F16F32_TN::fma(
            sums(0), sums(1), sums(2), sums(3), x[0], x[1], x[2], x[3], y[0], y[1], sums(0), sums(1), sums(2), sums(3));
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) c[4 * lane + i] = sums(i);
#else
    auto left = make_tensor(make_gmem_ptr(a), make_layout(make_shape(16, k), make_stride(k, _1{})));
    auto right = make_tensor(make_gmem_ptr(b), make_layout(make_shape(8, k), make_stride(k, _1{})));
    for (int i = 0; i < 4; ++i) {
        float sum = 0;
        for (int j = 0; j < k; ++j) sum += float(left(lane / 2, j)) * float(right(lane % 2 * 4 + i, j));
        c[4 * lane + i] = sum;
    }
#endif
}

extern "C" void solve(const void* a, const void* b, float* c, int k) {
    product_tile<<<1, 32>>>(static_cast<const half_t*>(a), static_cast<const half_t*>(b), c, k);
}
