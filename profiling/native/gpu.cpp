#include "gpu.h"
#include "gpu_kernels.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

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
    Result (*device_uuid)(Uuid*, Device);     // of the slice, where the GPU is divided (MIG)
    Result (*whole_gpu_uuid)(Uuid*, Device);  // null where the driver has it no more
    Result (*attribute)(int*, int, Device);
    Result (*retain)(void**, Device);
    Result (*set_current)(void*);
    Result (*open_handle)(Pointer*, Handle, unsigned);
    Result (*allocate)(Pointer*, size_t);
    Result (*to_device)(Pointer, const void*, size_t);
    Result (*to_host)(void*, Pointer, size_t);
    Result (*create_event)(Event*, unsigned);
    Result (*record)(Event, void*);
    Result (*elapsed)(float*, Event, Event);
    Result (*query)(void*);
    Result (*synchronize)();
    Result (*reset_persisting)();
    Result (*profiler_start)();
    Result (*profiler_stop)();
    Result (*error_string)(Result, const char**);
    Result (*load_module)(void**, const void*);
    Result (*get_function)(void**, void*, const char*);
    Result (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
};

char message[512];

constexpr int kThreads = 512, kFlushL2s = 2, kPasses = 2;
constexpr int kSmCount = 16, kL2Bytes = 38, kThreadsPerSm = 39;  // CUdevice_attribute
// By the device's timer, nanoseconds: the lead's end, and after all that `solve` did.
struct Span {
    uint64_t begin, end;
};
struct Lead {
    void *function, *stamp;
    unsigned blocks;
    Pointer buffer, arrived, table;
    uint64_t chunks;
};

#if defined(__aarch64__)
constexpr size_t kMostPage = 1 << 16;
#else
constexpr size_t kMostPage = 1 << 12;
#endif
// What stays as it is once the device is open, on pages of its own, so that `gpu_freeze` can make them read-only.
struct alignas(kMostPage) Constant {
    Driver driver;
    Event begin_event, default_stream_end, device_end;
    Lead lead;
};
Constant constant;
constexpr Driver& driver = constant.driver;
constexpr Lead& lead = constant.lead;
constexpr Event &begin_event = constant.begin_event, &default_stream_end = constant.default_stream_end,
                &device_end = constant.device_end;

uint64_t secret;        // moves on with each use
uint32_t all_arrivals;  // of the lead's blocks, those of the next lead too

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
    d.whole_gpu_uuid = reinterpret_cast<Result (*)(Uuid*, Device)>(dlsym(library, "cuDeviceGetUuid"));
    return resolve(library, d.init, "cuInit") && resolve(library, d.device_count, "cuDeviceGetCount") &&
           resolve(library, d.device, "cuDeviceGet") &&
           resolve(library, d.device_uuid, "cuDeviceGetUuid_v2", "cuDeviceGetUuid") &&
           resolve(library, d.attribute, "cuDeviceGetAttribute") &&
           resolve(library, d.retain, "cuDevicePrimaryCtxRetain") &&
           resolve(library, d.set_current, "cuCtxSetCurrent") &&
           resolve(library, d.open_handle, "cuIpcOpenMemHandle_v2") &&
           resolve(library, d.allocate, "cuMemAlloc_v2") && resolve(library, d.to_device, "cuMemcpyHtoD_v2") &&
           resolve(library, d.to_host, "cuMemcpyDtoH_v2") &&
           resolve(library, d.create_event, "cuEventCreate") && resolve(library, d.record, "cuEventRecord") &&
           resolve(library, d.elapsed, "cuEventElapsedTime_v2", "cuEventElapsedTime") &&
           resolve(library, d.query, "cuStreamQuery") && resolve(library, d.synchronize, "cuCtxSynchronize") &&
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

// Whether the device is the GPU of this UUID, or a slice of it: CUDA shows one slice under the whole GPU's name.
bool is_named(Device device, const char* wanted, bool* named) {
    Uuid uuid;
    char text[48];
    if (!good(driver.device_uuid(&uuid, device), "cuDeviceGetUuid")) return false;
    print_uuid(uuid, text, sizeof text);
    *named = strcmp(text, wanted) == 0;
    if (*named || !driver.whole_gpu_uuid || driver.whole_gpu_uuid(&uuid, device) != 0) return true;
    print_uuid(uuid, text, sizeof text);
    *named = strcmp(text, wanted) == 0;
    return true;
}

// splitmix64
uint64_t hashed(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

bool stamp(Pointer at) {
    void* arguments[] = {&at};
    return good(driver.launch(lead.stamp, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr), "cuLaunchKernel");
}

// From the lead's end on, and not from an event behind it: what `solve` puts on another stream may run before such an
// event is reached, but not before the lead ends.
bool since_lead(Pointer place, int64_t* result) {
    Span span;
    if (!good(driver.to_host(&span, place, sizeof span), "cuMemcpyDtoH")) return false;
    if (span.end < span.begin) {
        snprintf(message, sizeof message, "clocks disagree: by the device's timer the lead ended after the call did");
        return false;
    }
    *result = static_cast<int64_t>(span.end - span.begin);
    return true;
}

// Where the clock's two times are to lie, another place in each call.
bool place_span(Pointer* span) {
    secret = hashed(secret);
    *span = lead.buffer + sizeof(Span) * (secret % lead.chunks);
    const Span none = {UINT64_MAX, 0};
    return good(driver.to_device(*span, &none, sizeof none), "cuMemcpyHtoD");
}

bool run_lead(uint32_t hold_us, bool flush, Pointer span, uint32_t outputs) {
    uint64_t hold_ns = UINT64_C(1000) * hold_us;
    uint32_t passes = flush ? kPasses : 0;
    all_arrivals += lead.blocks;  // counted on and on, so that nothing has to be cleared
    uint64_t seed = secret = hashed(secret);
    void* arguments[] = {&lead.buffer,  &lead.chunks, &hold_ns,    &passes,  &lead.arrived,
                         &all_arrivals, &span,        &lead.table, &outputs, &seed};
    return good(driver.launch(lead.function, lead.blocks, 1, 1, kThreads, 1, 1, 0, nullptr, arguments, nullptr),
                "cuLaunchKernel");
}

bool prepare_lead(Device device) {
    int sms = 0, threads = 0, l2 = 0;
    void* module = nullptr;
    if (!good(driver.attribute(&sms, kSmCount, device), "cuDeviceGetAttribute") ||
        !good(driver.attribute(&threads, kThreadsPerSm, device), "cuDeviceGetAttribute") ||
        !good(driver.attribute(&l2, kL2Bytes, device), "cuDeviceGetAttribute") ||
        !good(driver.load_module(&module, own_kernels), "cuModuleLoadData") ||
        !good(driver.get_function(&lead.function, module, "lead"), "cuModuleGetFunction") ||
        !good(driver.get_function(&lead.stamp, module, "stamp"), "cuModuleGetFunction"))
        return false;
    lead.blocks = static_cast<unsigned>(sms * (threads / kThreads));
    const uint64_t bytes = static_cast<uint64_t>(kFlushL2s) * (l2 > 0 ? l2 : 64 << 20);
    lead.chunks = bytes / 16;
    const uint32_t none = 0;
    if (getrandom(&secret, sizeof secret, 0) != sizeof secret) {
        snprintf(message, sizeof message, "no random numbers: getrandom fails");
        return false;
    }
    Pointer span;
    return good(driver.allocate(&lead.buffer, bytes), "cuMemAlloc") &&
           good(driver.allocate(&lead.arrived, sizeof none), "cuMemAlloc") &&
           good(driver.allocate(&lead.table, kMostOutputs * sizeof(GpuRange)), "cuMemAlloc") &&
           good(driver.to_device(lead.arrived, &none, sizeof none), "cuMemcpyHtoD") &&
           // Once each, since the driver loads a kernel when it is launched first.
           place_span(&span) && run_lead(0, false, span, 0) && stamp(span) &&
           good(driver.synchronize(), "cuCtxSynchronize");
}

// Waiting once, unmeasured, brings our context back on a GPU that served another process meanwhile.
bool settle() {
    return good(driver.record(begin_event, nullptr), "cuEventRecord") && good(driver.synchronize(), "before solve");
}

// Settles and runs the lead; `span` is where the clock's times will lie.
bool begin_led(uint32_t hold_us, bool flush, const GpuRange* outputs, uint32_t output_count, Pointer* span) {
    driver.reset_persisting();  // not every GPU has such lines
    return place_span(span) &&
           (output_count == 0 ||
            good(driver.to_device(lead.table, outputs, output_count * sizeof *outputs), "cuMemcpyHtoD")) &&
           settle() && run_lead(hold_us, flush, *span, output_count);
}

char opened[48];  // the UUID of the device whose context is open

bool open_device(const char* wanted) {
    if (strcmp(opened, wanted) == 0) return true;
    if (!resolve_driver() || !good(driver.init(0), "cuInit")) return false;
    int count = 0;
    if (!good(driver.device_count(&count), "cuDeviceGetCount")) return false;
    for (int i = 0; i < count; i++) {
        Device device;
        bool named = false;
        if (!good(driver.device(&device, i), "cuDeviceGet") || !is_named(device, wanted, &named)) return false;
        if (!named) continue;
        void* context = nullptr;
        if (!good(driver.retain(&context, device), "cuDevicePrimaryCtxRetain") ||
            !good(driver.set_current(context), "cuCtxSetCurrent") ||
            !good(driver.create_event(&begin_event, 0), "cuEventCreate") ||
            !good(driver.create_event(&default_stream_end, 0), "cuEventCreate") ||
            !good(driver.create_event(&device_end, 0), "cuEventCreate") || !prepare_lead(device))
            return false;
        snprintf(opened, sizeof opened, "%s", wanted);
        return true;
    }
    snprintf(message, sizeof message, "%s is not among the %d GPUs that the driver shows", wanted, count);
    return false;
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
    const char* why = gpu_open_alone(uuid);
    return why ? why : gpu_place(data, bytes, base);
}

const char* gpu_open_alone(const char* uuid) { return open_device(uuid) ? nullptr : message; }

const char* gpu_freeze(GpuRange* frozen) {
    *frozen = {reinterpret_cast<uint64_t>(&constant), sizeof constant};
    if (mprotect(&constant, sizeof constant, PROT_READ) == 0) return nullptr;
    snprintf(message, sizeof message, "mprotect: %s", strerror(errno));
    return message;
}

const char* gpu_place(const void* data, uint64_t bytes, uint64_t* address) {
    Pointer place = 0;
    if (!good(driver.allocate(&place, bytes > 0 ? bytes : 1), "cuMemAlloc") ||
        (data && bytes > 0 && !good(driver.to_device(place, data, bytes), "cuMemcpyHtoD")) ||
        !good(driver.synchronize(), "cuCtxSynchronize"))
        return message;
    *address = place;
    return nullptr;
}

const char* gpu_calls(int64_t (*solve)(void*), void* const* contexts, uint32_t count, uint32_t lead_us, uint32_t flush,
                      const GpuRange* outputs, uint32_t output_count, int64_t* codes, GpuTimes* times) {
    const bool led = lead_us > 0;
    Pointer span = 0;
    const bool begun = led ? begin_led(lead_us * count, flush != 0, outputs, output_count, &span)
                           : settle() && good(driver.record(begin_event, nullptr), "cuEventRecord");
    if (!begun) return message;
    for (uint32_t i = 0; i < count; i++) codes[i] = solve(contexts[i]);
    // Where `solve` waited for the GPU itself, an event more would take the idle GPU some microseconds: a needless wait
    // would be billed, and leaving it out would look like a gain.
    const bool waited = driver.query(nullptr) == 0;
    if ((!waited && !good(driver.record(default_stream_end, nullptr), "after solve")) ||
        !good(driver.synchronize(), "after solve") || (led && !stamp(span + offsetof(Span, end))) ||
        !good(driver.record(device_end, nullptr), "after solve") || !good(driver.synchronize(), "after solve"))
        return message;
    const bool read = led ? since_lead(span, &times->synced) : nanoseconds(begin_event, device_end, &times->synced);
    int64_t after = 0;  // the default stream's end
    if (!read || (!waited && !nanoseconds(default_stream_end, device_end, &after))) return message;
    times->event = times->synced > after ? times->synced - after : 0;
    return nullptr;
}

const char* gpu_calls_each(int64_t (*solve)(void*), void* const* contexts, uint32_t count, uint32_t lead_us,
                           uint32_t flush, const GpuRange* outputs, uint32_t outputs_each, int64_t* codes,
                           GpuTimes* times) {
    const char* why = nullptr;
    for (uint32_t i = 0; i < count && !why; i++)
        why = gpu_calls(solve, contexts + i, 1, lead_us, flush, outputs + i * outputs_each, outputs_each, codes + i,
                        times + i);
    return why;
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
