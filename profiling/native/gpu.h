// The GPU side of a worker, over the driver API alone: no CUDA header, no run-time library and no compiler is needed to
// build it. The native runner links it in; a Triton worker loads it as a shared library, hence the C interface.
// Every function returns null, or a message that stays valid until the next call.
#pragma once
#include <stdint.h>

// What the oracle puts into the memory file that stands for an arena on a GPU.
struct GpuArena {
    char uuid[48];      // `GPU-…`, the device that holds it
    uint8_t handle[64]; // CUDA IPC handle of one dedicated allocation
    uint64_t bytes;     // its size
};

// Memory on the device (of `gpu_freeze`: on the host); `bytes` is at least 1.
struct GpuRange {
    uint64_t address, bytes;
};
enum { kMostOutputs = 1024 };  // of one `gpu_calls`

// Calls by the device's clock, nanoseconds. `synced` runs from before the first to after a device-wide synchronisation, so
// work on other streams counts; `event` ends where the default stream ended, or as `synced` does where that was no later
// than `solve`.
struct GpuTimes {
    int64_t synced, event;
};

extern "C" {
// Opens the device's primary context, unless `gpu_open_alone` did, and maps the arena; `base` is its device address.
const char* gpu_open(const struct GpuArena* arena, uint64_t* base);
// The same without an oracle: `bytes` of device memory of its own, filled from `data` (a profiler's call).
const char* gpu_stage(const char* uuid, const void* data, uint64_t bytes, uint64_t* base);
// Opens the device alone: ahead of its arena, or for a call whose tensors are apart.
const char* gpu_open_alone(const char* uuid);
// Makes read-only, from when the device is open on, what of ours stays as it is; `frozen` is where that lies.
const char* gpu_freeze(struct GpuRange* frozen);
// Allocates `bytes`, filled from `data` unless that is null.
const char* gpu_place(const void* data, uint64_t bytes, uint64_t* address);
// Calls `solve(contexts[i])` for each i below `count`, one behind the other, the device idle before the first and after the
// last.
//
// With `lead_us` the clock starts as a kernel of our own ends that holds every thread of every SM for at least as long,
// times `count`, so that what launching costs the host is not billed. That kernel leaves the time itself, so no kernel that
// `solve` starts, on whatever stream, can run before the clock does. Persisting L2 lines are reset before. With `flush`
// that kernel ends by reading several times the L2: what a copy engine may have fetched meanwhile is gone.
//
// Before it ends it spoils some bytes of each of `outputs`, which the calls are to write: what was written to them before
// the clock started, by a copy engine or a thread that ran ahead, is wrong then.
const char* gpu_calls(int64_t (*solve)(void*), void* const* contexts, uint32_t count, uint32_t lead_us, uint32_t flush,
                      const struct GpuRange* outputs, uint32_t output_count, int64_t* codes, struct GpuTimes* times);
// The same for each call by itself; of `outputs` there are `outputs_each` for each call, and of `times` as many as calls.
const char* gpu_calls_each(int64_t (*solve)(void*), void* const* contexts, uint32_t count, uint32_t lead_us,
                           uint32_t flush, const struct GpuRange* outputs, uint32_t outputs_each, int64_t* codes,
                           struct GpuTimes* times);
// One call between cuProfilerStart and cuProfilerStop, untimed, the device idle before and after it.
const char* gpu_profiled_call(int64_t (*solve)(void*), void* context, int64_t* code);
// Launches a kernel of our own between cuProfilerStart and cuProfilerStop: can its counters be read?
const char* gpu_probe(const char* uuid);
}
