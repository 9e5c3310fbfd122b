#include <cuda_bf16.h>
#include <cuda_fp8.h>
extern "C" void solve(const __nv_fp8_e5m2* q, __nv_bfloat16 const* w, nv_bfloat16* out, __nv_bfloat16 scale, bool relu) {
    out[0] = __hmul(w[0], scale);
}
