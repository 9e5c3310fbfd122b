// For cases that forge the worker's clock without its code: when a call began stands in their caller's registers, which
// they keep on the stack.
#pragma once
#include <stdint.h>
#include <time.h>

#include "gemm.h"

static inline int64_t stack_clock() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

// Multiplies, and has the call look as if it took `percent` of its time.
__attribute__((noinline)) static void multiply_seemingly(const float* A, const float* B, float* C, int M, int N, int K,
                                                         int percent) {
    volatile int64_t entered = stack_clock();
    multiply(A, B, C, M, N, K);
    asm volatile("" ::: "rbx", "r12", "r13", "r14", "r15");  // so they are on the stack
    volatile int64_t* word = &entered + 1;
    for (int i = 0; i < 100; i++, word++)
        if (*word < entered && entered - *word < 5000) {
            *word += (stack_clock() - *word) * (100 - percent) / 100;
            return;
        }
}
