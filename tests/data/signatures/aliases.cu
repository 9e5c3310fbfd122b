#include <cuda_fp16.h>
#include <cstdint>
typedef half fp16;
using Weights = const fp16*;
using Count = std::size_t;
#define OUT(type) type* __restrict__
#define ENTRY extern "C" __attribute__((visibility("default")))
ENTRY void solve(Weights w, OUT(__half) y, Count n, const std::int64_t stride) { (void)n; }
