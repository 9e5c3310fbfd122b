// What the pinned cores can do: copy and read bandwidth from memory and caches, and multiply-add rate per vector width.
//
//     ceilings BUFFER_BYTES L1_BYTES L2_BYTES CPU [CPU ...]
//
// Prints one line per measurement, `name one|all rate spread`, in bytes or operations per second: the best of several
// repeats, since whatever else runs on the machine can only slow a repeat down. Repeats go on until the two best agree
// within 2%, at most ten times; `spread` is how far they are apart in the end. `one` is one core, `all` all that are given.
// Arithmetic is checked against its closed form, so that a rate is never that of code the compiler threw away.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace {

// The value must be in a register here, whatever the optimiser knows about it.
#if defined(__AVX512F__)
#define KEEP(v) asm volatile("" : "+v"(v))
#elif defined(__x86_64__)
#define KEEP(v) asm volatile("" : "+x"(v))
#else
#define KEEP(v) asm volatile("" : "+w"(v))
#endif
#if defined(__AVX512F__)
constexpr int kWidest = 64;
#elif defined(__AVX__)
constexpr int kWidest = 32;
#else
constexpr int kWidest = 16;
#endif

template <typename T, int W>
struct Vector {
    typedef T type __attribute__((vector_size(W), aligned(W)));
};

constexpr int kMaxThreads = 1024;
constexpr int kAccumulators = 12;  // 2 pipes x 4-5 cycles of latency, in 16 registers with two operands to spare
bool broken = false;

double now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Job {
    char* source;       // this thread's slices
    char* target;
    std::size_t bytes;  // length of a slice
    long rounds;        // inner repetitions
    double done;        // operations or bytes, filled in by the job
    double start, end;
};
typedef void (*Body)(Job&);

struct Task {
    Job job;
    Body body;
    int cpu;
    pthread_barrier_t* ready;
};

void* run_task(void* raw) {
    Task& task = *static_cast<Task*>(raw);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(task.cpu, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0) broken = true;
    pthread_barrier_wait(task.ready);
    task.job.start = now();
    task.body(task.job);
    task.job.end = now();
    return nullptr;
}

// Operations or bytes per second of all threads together, from the first start to the last end.
double rate(Body body, const int* cpus, int threads, char* source, char* target, std::size_t slice, long rounds) {
    static Task tasks[kMaxThreads];
    static pthread_t ids[kMaxThreads];
    pthread_barrier_t ready;
    pthread_barrier_init(&ready, nullptr, static_cast<unsigned>(threads));
    for (int i = 0; i < threads; ++i) {
        const std::size_t at = static_cast<std::size_t>(i) * slice;
        tasks[i] = Task{Job{source + at, target + at, slice, rounds, 0, 0, 0}, body, cpus[i], &ready};
        if (pthread_create(&ids[i], nullptr, run_task, &tasks[i]) != 0) {
            std::fprintf(stderr, "cannot start thread %d\n", i);
            std::exit(1);
        }
    }
    double start = 1e300, end = 0, done = 0;
    for (int i = 0; i < threads; ++i) {
        pthread_join(ids[i], nullptr);
        start = std::fmin(start, tasks[i].job.start);
        end = std::fmax(end, tasks[i].job.end);
        done += tasks[i].job.done;
    }
    pthread_barrier_destroy(&ready);
    return done / (end - start);
}

void touch(Job& job) {
    std::memset(job.source, 1, job.bytes);
    std::memset(job.target, 2, job.bytes);
    job.done = 2.0 * static_cast<double>(job.bytes);
}

void copy_library(Job& job) {
    std::memcpy(job.target, job.source, job.bytes);
    job.done = 2.0 * static_cast<double>(job.bytes);
}

void copy_plain(Job& job) {
    typedef typename Vector<float, kWidest>::type V;
    const V* from = reinterpret_cast<const V*>(job.source);
    V* to = reinterpret_cast<V*>(job.target);
    const std::size_t n = job.bytes / sizeof(V);
    for (std::size_t i = 0; i + 4 <= n; i += 4)
        for (std::size_t k = 0; k < 4; ++k) {
            V v = from[i + k];
            KEEP(v);  // keeps the loop from becoming the library's memcpy
            to[i + k] = v;
        }
    job.done = 2.0 * static_cast<double>(n * sizeof(V));
}

#if defined(__AVX__)
void copy_streaming(Job& job) {
    const float* from = reinterpret_cast<const float*>(job.source);
    float* to = reinterpret_cast<float*>(job.target);
    const std::size_t n = job.bytes / sizeof(float);
    for (std::size_t i = 0; i + 32 <= n; i += 32)
        for (std::size_t k = 0; k < 32; k += 8) _mm256_stream_ps(to + i + k, _mm256_load_ps(from + i + k));
    _mm_sfence();
    job.done = 2.0 * static_cast<double>(job.bytes);
}
#endif

template <int W>
void read(Job& job) {
    typedef typename Vector<float, W>::type V;
    const V* from = reinterpret_cast<const V*>(job.source);
    const std::size_t n = job.bytes / sizeof(V) / 8 * 8;
    V sum[8] = {};
    for (long round = 0; round < job.rounds; ++round)
        for (std::size_t i = 0; i < n; i += 8) {
#pragma GCC unroll 8
            for (std::size_t k = 0; k < 8; ++k) {
                sum[k] += from[i + k];
                KEEP(sum[k]);
            }
        }
    job.done = static_cast<double>(job.rounds) * static_cast<double>(n * sizeof(V));
}

// x <- x*b + c on independent accumulators, towards the fixed point c/(1-b) = 1.
template <typename T, int W>
void multiply_add(Job& job) {
    typedef typename Vector<T, W>::type V;
    constexpr int lanes = W / static_cast<int>(sizeof(T));
    V x[kAccumulators], b = V{} + T(0.5), c = V{} + T(0.5);
    KEEP(b);
    KEEP(c);
#pragma GCC unroll 12
    for (int k = 0; k < kAccumulators; ++k) x[k] = V{} + T(k + 2);
    for (long round = 0; round < job.rounds; ++round) {
#pragma GCC unroll 12
        for (int k = 0; k < kAccumulators; ++k) {
            x[k] = x[k] * b + c;
            KEEP(x[k]);
        }
    }
    V sum = V{};
#pragma GCC unroll 12
    for (int k = 0; k < kAccumulators; ++k) sum += x[k];
    T out[lanes];
    std::memcpy(out, &sum, sizeof sum);
    for (int l = 0; l < lanes; ++l)
        if (!(std::fabs(static_cast<double>(out[l]) - kAccumulators) < 1e-4)) broken = true;
    job.done = 2.0 * lanes * kAccumulators * static_cast<double>(job.rounds);
}

struct Buffers {
    char *source, *target;
    const int* cpus;
    int threads;
};

void report(const char* name, Body body, const Buffers& at, bool one, std::size_t slice, long rounds) {
    const int threads = one ? 1 : at.threads;
    double best = 0, second = 0;
    for (int i = 0; i < 10 && (i < 3 || second < 0.98 * best); ++i) {
        const double r = rate(body, at.cpus, threads, at.source, at.target, slice, rounds);
        second = std::fmax(second, std::fmin(best, r));
        best = std::fmax(best, r);
    }
    std::printf("%s %s %.6g %.4f\n", name, one ? "one" : "all", best, 1 - second / best);
    std::fflush(stdout);
}

// Rounds that take about `seconds` on the first core.
long calibrate(Body body, const Buffers& at, std::size_t slice, double seconds) {
    long rounds = 64;
    for (;;) {
        const double start = now();
        rate(body, at.cpus, 1, at.source, at.target, slice, rounds);
        const double took = now() - start;
        if (took > 0.002) return static_cast<long>(static_cast<double>(rounds) * seconds / took) + 1;
        rounds *= 4;
    }
}

void measure_both(const char* name, Body body, const Buffers& at, std::size_t slice, double seconds) {
    const long rounds = calibrate(body, at, slice, seconds);
    report(name, body, at, true, slice, rounds);
    if (at.threads > 1) report(name, body, at, false, slice, rounds);
}

void measure_memory(const Buffers& at, std::size_t bytes, bool one) {
    const std::size_t slice = bytes / static_cast<std::size_t>(one ? 1 : at.threads) / 4096 * 4096;
    report("copy_library", copy_library, at, one, slice, 1);
    report("copy_plain", copy_plain, at, one, slice, 1);
#if defined(__AVX__)
    report("copy_streaming", copy_streaming, at, one, slice, 1);
#endif
    report("read_memory", read<kWidest>, at, one, slice, 1);
}

char* allocate(std::size_t bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        std::fprintf(stderr, "cannot allocate %zu bytes\n", bytes);
        std::exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    return static_cast<char*>(p);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 5 || argc - 4 > kMaxThreads) {
        std::fprintf(stderr, "usage: ceilings BUFFER_BYTES L1_BYTES L2_BYTES CPU [CPU ...]\n");
        return 1;
    }
    const std::size_t bytes = std::strtoull(argv[1], nullptr, 10);
    const std::size_t l1 = std::strtoull(argv[2], nullptr, 10), l2 = std::strtoull(argv[3], nullptr, 10);
    static int cpus[kMaxThreads];
    const int threads = argc - 4;
    for (int i = 0; i < threads; ++i) cpus[i] = std::atoi(argv[4 + i]);
    const Buffers at{allocate(bytes), allocate(bytes), cpus, threads};
    rate(touch, cpus, threads, at.source, at.target, bytes / static_cast<std::size_t>(threads) / 4096 * 4096, 1);

    const double arithmetic_s = 0.008, cache_s = 0.004;
    measure_both("float32_128", multiply_add<float, 16>, at, 4096, arithmetic_s);
    measure_both("float64_128", multiply_add<double, 16>, at, 4096, arithmetic_s);
#if defined(__AVX__)
    measure_both("float32_256", multiply_add<float, 32>, at, 4096, arithmetic_s);
    measure_both("float64_256", multiply_add<double, 32>, at, 4096, arithmetic_s);
#endif
#if defined(__AVX512F__)
    measure_both("float32_512", multiply_add<float, 64>, at, 4096, arithmetic_s);
    measure_both("float64_512", multiply_add<double, 64>, at, 4096, arithmetic_s);
#endif
    measure_both("read_l1", read<kWidest>, at, l1 / 2 / 4096 * 4096, cache_s);
    measure_both("read_l2", read<kWidest>, at, l2 / 2 / 4096 * 4096, cache_s);
    measure_memory(at, bytes, true);
    if (threads > 1) measure_memory(at, bytes, false);
    if (broken) {
        std::fprintf(stderr, "arithmetic or pinning went wrong: the rates above mean nothing\n");
        return 2;
    }
    return 0;
}
