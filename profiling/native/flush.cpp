// Puts a range of memory out of every cache of the machine. Loaded by the oracle.
#include <stdint.h>
#include <stddef.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

extern "C" void flush_range(const char* begin, size_t bytes) {
    const char* at = reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(begin) & ~uintptr_t(63));
    const char* end = begin + bytes;
#if defined(__x86_64__)
    for (; at < end; at += 64) _mm_clflush(at);  // writes dirty lines back: none is billed to the kernel
    _mm_mfence();
#elif defined(__aarch64__)
    for (; at < end; at += 64) asm volatile("dc civac, %0" ::"r"(at) : "memory");
    asm volatile("dsb sy" ::: "memory");
#else
#error "no cache flush for this processor"
#endif
}
