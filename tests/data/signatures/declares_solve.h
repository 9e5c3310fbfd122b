#pragma once
#include <cuda_fp16.h>
extern "C" void solve(const half* A, half* C, int N);
