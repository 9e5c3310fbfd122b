#include "gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

namespace {

using Result = int;
using Device = int;
using Pointer = unsigned long long;
using Event = void*;
struct Uuid {
    unsigned char bytes[16];
};
struct Handle {
    uint8_t bytes[64];
};

// The part of the driver API that is used, resolved before any candidate is loaded.
struct Driver {
    Result (*init)(unsigned);
    Result (*device_count)(int*);
    Result (*device)(Device*, int);
    Result (*device_uuid)(Uuid*, Device);
    Result (*retain)(void**, Device);
    Result (*set_current)(void*);
    Result (*open_handle)(Pointer*, Handle, unsigned);
    Result (*allocate)(Pointer*, size_t);
    Result (*to_device)(Pointer, const void*, size_t);
    Result (*create_event)(Event*, unsigned);
    Result (*record)(Event, void*);
    Result (*elapsed)(float*, Event, Event);
    Result (*synchronize)();
    Result (*reset_persisting)();
    Result (*profiler_start)();
    Result (*profiler_stop)();
    Result (*error_string)(Result, const char**);
    Result (*load_module)(void**, const void*);
    Result (*get_function)(void**, void*, const char*);
    Result (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
};

Driver driver;
Event begin_event, default_stream_end, device_end;
char message[512];

template <typename Function>
bool resolve(void* library, Function& function, const char* name, const char* older = nullptr) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (!function && older) function = reinterpret_cast<Function>(dlsym(library, older));
    if (!function) snprintf(message, sizeof message, "the NVIDIA driver has no %s: update it", name);
    return function != nullptr;
}

bool resolve_driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(message, sizeof message, "no NVIDIA driver: %s", dlerror());
        return false;
    }
    Driver& d = driver;
    return resolve(library, d.init, "cuInit") && resolve(library, d.device_count, "cuDeviceGetCount") &&
           resolve(library, d.device, "cuDeviceGet") &&
           resolve(library, d.device_uuid, "cuDeviceGetUuid_v2", "cuDeviceGetUuid") &&
           resolve(library, d.retain, "cuDevicePrimaryCtxRetain") &&
           resolve(library, d.set_current, "cuCtxSetCurrent") &&
           resolve(library, d.open_handle, "cuIpcOpenMemHandle_v2") &&
           resolve(library, d.allocate, "cuMemAlloc_v2") && resolve(library, d.to_device, "cuMemcpyHtoD_v2") &&
           resolve(library, d.create_event, "cuEventCreate") && resolve(library, d.record, "cuEventRecord") &&
           resolve(library, d.elapsed, "cuEventElapsedTime_v2", "cuEventElapsedTime") &&
           resolve(library, d.synchronize, "cuCtxSynchronize") &&
           resolve(library, d.reset_persisting, "cuCtxResetPersistingL2Cache") &&
           resolve(library, d.profiler_start, "cuProfilerStart") &&
           resolve(library, d.profiler_stop, "cuProfilerStop") && resolve(library, d.error_string, "cuGetErrorString") &&
           resolve(library, d.load_module, "cuModuleLoadData") &&
           resolve(library, d.get_function, "cuModuleGetFunction") && resolve(library, d.launch, "cuLaunchKernel");
}

bool good(Result result, const char* what) {
    if (result == 0) return true;
    const char* text = nullptr;
    if (!driver.error_string || driver.error_string(result, &text) != 0 || !text) text = "unknown error";
    snprintf(message, sizeof message, "%s: CUDA error %d, %s", what, result, text);
    return false;
}

void print_uuid(const Uuid& uuid, char* text, size_t size) {
    const unsigned char* b = uuid.bytes;
    snprintf(text, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2],
             b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

bool open_device(const char* wanted) {
    if (!resolve_driver() || !good(driver.init(0), "cuInit")) return false;
    int count = 0;
    if (!good(driver.device_count(&count), "cuDeviceGetCount")) return false;
    for (int i = 0; i < count; i++) {
        Device device;
        Uuid uuid;
        char text[48];
        if (!good(driver.device(&device, i), "cuDeviceGet") || !good(driver.device_uuid(&uuid, device), "cuDeviceGetUuid"))
            return false;
        print_uuid(uuid, text, sizeof text);
        if (strcmp(text, wanted) != 0) continue;
        void* context = nullptr;
        return good(driver.retain(&context, device), "cuDevicePrimaryCtxRetain") &&
               good(driver.set_current(context), "cuCtxSetCurrent") &&
               good(driver.create_event(&begin_event, 0), "cuEventCreate") &&
               good(driver.create_event(&default_stream_end, 0), "cuEventCreate") &&
               good(driver.create_event(&device_end, 0), "cuEventCreate");
    }
    snprintf(message, sizeof message, "%s is not among the %d GPUs that the driver shows", wanted, count);
    return false;
}

int64_t now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

bool nanoseconds(Event from, Event to, int64_t* result) {
    float milliseconds = 0;
    if (!good(driver.elapsed(&milliseconds, from, to), "cuEventElapsedTime")) return false;
    *result = static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
    return true;
}

}  // namespace

const char* gpu_open(const GpuArena* arena, uint64_t* base) {
    if (!open_device(arena->uuid)) return message;
    Handle handle;
    memcpy(handle.bytes, arena->handle, sizeof handle.bytes);
    Pointer address = 0;
    if (!good(driver.open_handle(&address, handle, 1 /* lazy peer access */), "cuIpcOpenMemHandle")) return message;
    *base = address;
    return nullptr;
}

const char* gpu_stage(const char* uuid, const void* data, uint64_t bytes, uint64_t* base) {
    Pointer address = 0;
    if (!open_device(uuid) || !good(driver.allocate(&address, bytes), "cuMemAlloc") ||
        !good(driver.to_device(address, data, bytes), "cuMemcpyHtoD") || !good(driver.synchronize(), "cuCtxSynchronize"))
        return message;
    *base = address;
    return nullptr;
}

const char* gpu_call(int64_t (*solve)(void*), void* context, int64_t* code, GpuTimes* times) {
    driver.reset_persisting();  // not every GPU has such lines
    // Once unmeasured: on a GPU that served another process meanwhile, this brings our context back.
    if (!good(driver.record(begin_event, nullptr), "cuEventRecord") || !good(driver.synchronize(), "before solve") ||
        !good(driver.record(begin_event, nullptr), "cuEventRecord"))
        return message;
    const int64_t start = now();
    *code = solve(context);
    times->host = now() - start;
    const bool ended = good(driver.record(default_stream_end, nullptr), "after solve") &&
                       good(driver.synchronize(), "after solve") &&
                       good(driver.record(device_end, nullptr), "after solve") &&
                       good(driver.synchronize(), "after solve");
    if (!ended || !nanoseconds(begin_event, device_end, &times->synced) ||
        !nanoseconds(begin_event, default_stream_end, &times->event))
        return message;
    return nullptr;
}

const char* gpu_profiled_call(int64_t (*solve)(void*), void* context, int64_t* code) {
    if (!good(driver.synchronize(), "before solve")) return message;
    driver.profiler_start();
    *code = solve(context);
    const bool ended = good(driver.synchronize(), "after solve");
    driver.profiler_stop();
    return ended ? nullptr : message;
}

const char* gpu_probe(const char* uuid) {
    static const char kernel[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry probe() { ret; }\n";
    void *module = nullptr, *function = nullptr;
    if (!open_device(uuid) || !good(driver.load_module(&module, kernel), "cuModuleLoadData") ||
        !good(driver.get_function(&function, module, "probe"), "cuModuleGetFunction"))
        return message;
    driver.profiler_start();
    const bool ended = good(driver.launch(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr), "cuLaunchKernel") &&
                       good(driver.synchronize(), "cuCtxSynchronize");
    driver.profiler_stop();
    return ended ? nullptr : message;
}
