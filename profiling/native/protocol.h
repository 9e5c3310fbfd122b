// The frames between the oracle and a worker. Fixed layout, native byte order: both ends are one machine.
#pragma once
#include <cstdint>

namespace wire {

constexpr uint32_t kMagic = 0x31464352;
constexpr uint32_t kMaxArguments = 64;
constexpr uint32_t kMaxSlots = 1024;
constexpr uint32_t kMaxCores = 256;

enum Kind : uint32_t { kSetup = 1, kHello = 2, kLoad = 3, kLoaded = 4, kRun = 5, kDone = 6 };

// Every frame starts with this. A reply echoes the random token of its request, so that it cannot be sent early.
struct Head {
    uint32_t magic;
    uint32_t kind;
    uint64_t token;
};

// Then come `arguments` of Argument, then `cores` of int32_t, then, for a Triton worker, the arguments by name as JSON.
// Sent again to a worker on a GPU it binds other arguments in the same memory; that has no answer.
//
// `apart` is for staged calls under a sanitizer, which must know where each tensor ends: each gets memory of its own, of
// end - begin bytes, to the byte.
struct Setup {
    Head head;
    uint32_t slots;
    uint32_t arguments;
    uint32_t cores;
    uint32_t apart;
    uint64_t slot_bytes;
};

// What an argument's `tensor` says: a scalar, a tensor, or one whose contents are the kernel's to write.
enum Kept : uint64_t { kScalar = 0, kTensor = 1, kUnwritten = 2 };

// A tensor of `size` bytes lies at `word` bytes from the start of its slot, in writable pages [begin, end); a scalar is its
// bits.
struct Argument {
    uint64_t tensor;
    uint64_t word;
    uint64_t begin;
    uint64_t end;
    uint64_t size;
};

struct Hello {
    Head head;
    uint64_t layers;
};

struct Loaded {
    Head head;
    int32_t status;
    uint32_t reserved;
    char text[1024];
};

// `lead_us` and `flush` are for a GPU: see gpu_calls in gpu.h. `together`: all calls go into one of those, else each alone.
struct Run {
    Head head;
    uint32_t first;
    uint32_t count;
    uint32_t lead_us;
    uint32_t flush;
    uint32_t together;
    uint32_t reserved;
};

// `nanoseconds` is the call's time (on a GPU with a device-wide synchronisation at its end), `code` what `solve` returned,
// `event_nanoseconds` where the default stream ended (on a CPU: `nanoseconds` again).
struct Call {
    int64_t nanoseconds;
    int64_t code;
    int64_t event_nanoseconds;
};

// Then come `count` of Call.
struct Done {
    Head head;
    uint64_t count;
};

}  // namespace wire
