// Runs one candidate behind walls and times its calls (--serve), or makes one call of it, behind the same walls, on
// data from a file (--solo), if asked to under a tool such as valgrind, which is then behind the walls too.
//
// Three processes: the first enters the namespaces, the second is the first of the new PID namespace and reports how
// the third, the worker, ended. The worker loads the candidate before any input exists (--serve).
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <initializer_list>

#ifdef ROOFCLIMB_GPU
#include "gpu.h"
#endif
#include "protocol.h"
#include "seal.h"
#include "stub.h"  // generated for the task's signature: call_solve(function, words)
#include "walls.h"

namespace {

constexpr int kBroken = 70;  // our own fault, before any candidate is loaded
constexpr int kFaulted = 71;  // the candidate's fault; the last line on standard error says which
constexpr uint64_t kServeFile = 1 << 20, kToolFile = 64 << 20;  // largest file that may be written
constexpr int kMaxWords = 64;
constexpr size_t kAlign = 64;  // of a tensor, as in profiling/harness/arena.py
enum Inherited { kBundle = 3, kCandidate, kSelf };              // descriptors of a solo call

struct Task {
    wire::Setup setup;
    wire::Argument arguments[wire::kMaxArguments];
    int32_t cores[wire::kMaxCores];
    uint64_t arena;  // its address, on a GPU the device's
    void* solve;
};

Task task;

[[noreturn]] void broken(const char* what) {
    fprintf(stderr, "worker: %s: %s\n", what, strerror(errno));
    _exit(kBroken);
}

// A setup frame, and no longer: what a Triton worker reads behind it is cut off.
char setup_packet[sizeof(wire::Setup) + sizeof task.arguments + sizeof task.cores];

bool parse_setup(const char* data, size_t size) {
    if (size < sizeof task.setup) return false;
    memcpy(&task.setup, data, sizeof task.setup);
    const wire::Setup& s = task.setup;
    if (s.head.magic != wire::kMagic || s.head.kind != wire::kSetup || s.arguments > wire::kMaxArguments ||
        s.slots > wire::kMaxSlots || s.cores > wire::kMaxCores)
        return false;
    size_t arguments = s.arguments * sizeof(wire::Argument), cores = s.cores * sizeof(int32_t);
    if (size < sizeof s + arguments + cores) return false;
    memcpy(task.arguments, data + sizeof s, arguments);
    memcpy(task.cores, data + sizeof s + arguments, cores);
    return true;
}

struct Bound {
    uint64_t words[wire::kMaxArguments];
};

// Gives each tensor of a staged call memory of its own, and says on standard output where, for reports of a sanitizer.
template <typename Place>
void place_apart(const char* data, Place place) {
    for (uint32_t i = 0; i < task.setup.arguments; i++) {
        wire::Argument& a = task.arguments[i];
        if (a.tensor == wire::kScalar) continue;
        a.word = place(a.tensor == wire::kUnwritten ? nullptr : data + a.begin, a.end - a.begin);
        printf("argument %u at 0x%llx\n", i, static_cast<unsigned long long>(a.word));
    }
    fflush(stdout);
    task.arena = 0;  // `word` is an address now
}

Bound bind_slot(uint64_t base) {
    Bound bound;
    for (uint32_t i = 0; i < task.setup.arguments; i++) {
        const wire::Argument& a = task.arguments[i];
        bound.words[i] = a.tensor ? base + a.word : a.word;
    }
    return bound;
}

int64_t solve_bound(void* bound) { return call_solve(task.solve, static_cast<Bound*>(bound)->words); }

#ifdef ROOFCLIMB_GPU

[[noreturn]] void faulted(const char* why) {
    fprintf(stderr, "%s\n", why);
    _exit(kFaulted);
}

uint64_t slot_address(uint32_t slot) { return task.arena + slot * task.setup.slot_bytes; }

// The arena's memory file says where the memory on the device is.
void open_memory(int fd) {
    GpuArena arena;
    if (pread(fd, &arena, sizeof arena, 0) != sizeof arena) broken("arena");
    close(fd);
    const char* why = gpu_open(&arena, &task.arena);
    if (why) {
        fprintf(stderr, "worker: %s\n", why);
        _exit(kBroken);
    }
}

// Tables of ours that a candidate must not change. No driver is opened after this.
std::vector<seal::Range> own_constants() {
    GpuRange frozen;
    const char* why = gpu_freeze(&frozen);
    if (!why) return {{frozen.address, frozen.address + frozen.bytes}};
    fprintf(stderr, "worker: %s\n", why);
    _exit(kBroken);
}

// What calls on these slots are to write, as far as there is room.
uint32_t list_outputs(uint32_t first, uint32_t count, GpuRange* ranges) {
    uint32_t n = 0;
    for (uint32_t slot = first; slot < first + count; slot++)
        for (uint32_t i = 0; i < task.setup.arguments && n < kMostOutputs; i++) {
            const wire::Argument& a = task.arguments[i];
            if (a.tensor == wire::kUnwritten && a.size > 0) ranges[n++] = {slot_address(slot) + a.word, a.size};
        }
    return n;
}

// Calls together are one batch, of which each has an equal share.
void call_slots(const wire::Run& how, wire::Call* calls) {
    static Bound bounds[wire::kMaxSlots];
    static void* contexts[wire::kMaxSlots];
    static int64_t codes[wire::kMaxSlots];
    static GpuRange ranges[kMostOutputs];
    for (uint32_t i = 0; i < how.count; i++) {
        bounds[i] = bind_slot(slot_address(how.first + i));
        contexts[i] = &bounds[i];
    }
    const uint32_t together = how.together ? how.count : 1;
    for (uint32_t at = 0; at < how.count; at += together) {
        GpuTimes times = {};
        const uint32_t outputs = how.lead_us > 0 ? list_outputs(how.first + at, together, ranges) : 0;
        const char* why = gpu_calls(solve_bound, contexts + at, together, how.lead_us, how.flush, ranges, outputs, codes + at,
                                    &times);
        if (why) faulted(why);
        for (uint32_t i = at; i < at + together; i++)
            calls[i] = {times.synced / together, codes[i], times.event / together};
    }
}

#else

uint64_t slot_address(uint32_t slot) { return task.arena + slot * task.setup.slot_bytes; }

// Everything of a slot but the pages of its tensors becomes inaccessible.
void fence_slot(char* slot) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < task.setup.arguments; i++) {
        const wire::Argument& a = task.arguments[i];
        if (!a.tensor) continue;
        if (a.begin > at && mprotect(slot + at, a.begin - at, PROT_NONE) != 0) broken("mprotect");
        at = a.end;
    }
    if (task.setup.slot_bytes > at && mprotect(slot + at, task.setup.slot_bytes - at, PROT_NONE) != 0)
        broken("mprotect");
}

// Page faults are paid here and not in the first timed call.
void populate(char* slot) {
    for (uint32_t i = 0; i < task.setup.arguments; i++) {
        const wire::Argument& a = task.arguments[i];
        if (!a.tensor || madvise(slot + a.begin, a.end - a.begin, 23 /* MADV_POPULATE_WRITE */) == 0) continue;
        for (uint64_t at = a.begin; at < a.end; at += 4096) {
            volatile char* page = slot + at;
            *page = *page;
        }
    }
}

void map_arena(int fd) {
    uint64_t bytes = task.setup.slots * task.setup.slot_bytes;
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (base == MAP_FAILED) broken("mmap");
    task.arena = reinterpret_cast<uint64_t>(base);
}

void open_memory(int fd) {
    map_arena(fd);
    for (uint32_t i = 0; i < task.setup.slots; i++) {
        char* slot = reinterpret_cast<char*>(slot_address(i));
        fence_slot(slot);
        populate(slot);
    }
    close(fd);
}

// What is constant of the host's runner the loader has made read-only.
std::vector<seal::Range> own_constants() { return {}; }

// Resolved before a candidate is loaded, so that a symbol of its own cannot stand in for it.
int (*const volatile clock_now)(clockid_t, timespec*) = clock_gettime;

int64_t nanoseconds() {
    timespec t;
    clock_now(CLOCK_MONOTONIC_RAW, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

wire::Call call_slot(uint32_t slot) {
    Bound bound = bind_slot(slot_address(slot));
    int64_t start = nanoseconds();
    int64_t code = solve_bound(&bound);
    int64_t taken = nanoseconds() - start;
    return {taken, code, taken};
}

void call_slots(const wire::Run& how, wire::Call* calls) {
    for (uint32_t i = 0; i < how.count; i++) calls[i] = call_slot(how.first + i);
}

#endif

bool load(int candidate, char* text, size_t size) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", candidate);
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    close(candidate);
    task.solve = library ? dlsym(library, "solve") : nullptr;
    if (task.solve) return true;
    const char* why = dlerror();
    snprintf(text, size, "%s", why ? why : "no symbol named solve");
    return false;
}

template <typename Frame>
void send_frame(int channel, const Frame& frame, size_t size = sizeof(Frame)) {
    while (send(channel, &frame, size, MSG_NOSIGNAL) < 0)
        if (errno != EINTR) _exit(kBroken);
}

ssize_t receive(int channel, void* buffer, size_t size) {
    for (;;) {
        ssize_t n = recv(channel, buffer, size, 0);
        if (n >= 0 || errno != EINTR) return n;
    }
}

void serve_calls(int channel) {
    static struct {
        wire::Done done;
        wire::Call calls[wire::kMaxSlots];
    } reply;
    for (;;) {
        const ssize_t size = receive(channel, setup_packet, sizeof setup_packet);
        wire::Run run;
        if (size < static_cast<ssize_t>(sizeof run)) _exit(0);
        memcpy(&run, setup_packet, sizeof run);
#ifdef ROOFCLIMB_GPU
        if (run.head.kind == wire::kSetup) {
            if (!parse_setup(setup_packet, size)) _exit(kBroken);
            continue;
        }
#endif
        if (run.head.kind != wire::kRun || run.first + run.count > task.setup.slots) _exit(kBroken);
        call_slots(run, reply.calls);
        reply.done = {{wire::kMagic, wire::kDone, run.head.token}, run.count};
        send_frame(channel, reply, sizeof reply.done + run.count * sizeof(wire::Call));
    }
}

void keep_only(std::initializer_list<int> kept) {
    int fds[4], n = 0;
    for (int fd : kept) fds[n++] = fd;
    std::sort(fds, fds + n);
    int next = 3;
    for (int i = 0; i < n; i++) {
        if (fds[i] > next) syscall(SYS_close_range, next, fds[i] - 1, 0);
        next = fds[i] + 1;
    }
    syscall(SYS_close_range, next, ~0U, 0);
}

struct Walls {
    bool root = geteuid() == 0;
    unsigned own_uid = 200000U + static_cast<unsigned>(getpid());
    uint64_t layers = 0;

    // In the worker: nothing after this may fork.
    void close_in(uint64_t file_bytes, bool may_exec) {
        walls::limit_resources(file_bytes);
        bool bare = walls::drop_privileges(root, own_uid);
        if (bare && root) layers |= walls::kUser;
        if (!bare) layers &= ~uint64_t(walls::kUser);
        prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of user id clears it, so after that
        if (walls::filter_system_calls(layers & walls::kPid, may_exec)) layers |= walls::kSeccomp;
    }
};

[[noreturn]] void worker(int channel, int arena, int candidate, Walls around) {
    ssize_t size = receive(channel, setup_packet, sizeof setup_packet);
    if (size < 0 || !parse_setup(setup_packet, size)) broken("setup frame");
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (uint32_t i = 0; i < task.setup.cores; i++) CPU_SET(task.cores[i], &cores);
    if (sched_setaffinity(0, sizeof cores, &cores) != 0) broken("sched_setaffinity");
    open_memory(arena);  // on a GPU the driver opens what the filter below forbids
    if (chdir((around.layers & walls::kMount) ? "/tmp" : "/") != 0) broken("chdir");
    around.close_in(kServeFile, false);
    if ((around.layers & walls::kSeccomp) && seal::put_on(own_constants())) around.layers |= walls::kSealed;

    send_frame(channel, wire::Hello{{wire::kMagic, wire::kHello, task.setup.head.token}, around.layers});
    wire::Head ask;
    if (receive(channel, &ask, sizeof ask) != sizeof ask || ask.kind != wire::kLoad) _exit(kBroken);
    wire::Loaded loaded = {{wire::kMagic, wire::kLoaded, ask.token}, 0, 0, {}};
    loaded.status = load(candidate, loaded.text, sizeof loaded.text) ? 0 : 1;
    send_frame(channel, loaded);
    serve_calls(channel);
    _exit(0);
}

// Reports the worker's wait status on `status` and ends, which ends whatever is left in the PID namespace.
[[noreturn]] void watch(pid_t pid, int status) {
    keep_only({status});
    int how = 0;
    while (waitpid(pid, &how, 0) < 0 && errno == EINTR) {
    }
    if (write(status, &how, sizeof how) != sizeof how) _exit(kBroken);
    _exit(0);
}

// Forks: the child, which alone returns, is to be the worker, and keeps only these descriptors.
void watched(int status, std::initializer_list<int> kept) {
    pid_t second = fork();
    if (second < 0) broken("fork");
    if (second > 0) watch(second, status);
    setsid();
    keep_only(kept);
}

// Enters the namespaces and returns in their first process; the one that called waits and ends as `first_ends` says.
Walls enter(const char* const* hidden, int count, const char* out, int (*first_ends)(int status)) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Walls around;
    around.layers = walls::enter_namespaces();
    pid_t first = fork();
    if (first < 0) broken("fork");
    if (first > 0) {
        keep_only({});
        int how = 0;
        while (waitpid(first, &how, 0) < 0 && errno == EINTR) {
        }
        _exit(first_ends(how));
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if ((around.layers & walls::kMount) && !walls::private_tree(hidden, count, out))
        around.layers &= ~uint64_t(walls::kMount);
    return around;
}

int serve(int channel, int arena, int artifact, int status, const char* const* hidden, int count) {
    int candidate = walls::private_copy(artifact);
    if (candidate < 0) broken("copy of the candidate");
    Walls around = enter(hidden, count, nullptr, [](int) { return 0; });
    watched(status, {channel, arena, candidate});
    worker(channel, arena, candidate, around);
}

#ifdef ROOFCLIMB_GPU

// One byte, and with it this many descriptors; false where the other end is closed.
bool receive_descriptors(int socket, int* descriptors, int count) {
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
    char byte;
    iovec part = {&byte, 1};
    msghdr message = {};
    message.msg_iov = &part, message.msg_iovlen = 1;
    message.msg_control = control, message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    ssize_t n;
    while ((n = recvmsg(socket, &message, 0)) < 0 && errno == EINTR) {
    }
    const cmsghdr* head = n == 1 ? CMSG_FIRSTHDR(&message) : nullptr;
    if (!head || head->cmsg_type != SCM_RIGHTS || head->cmsg_len != CMSG_LEN(count * sizeof(int))) return false;
    memcpy(descriptors, CMSG_DATA(head), count * sizeof(int));
    return true;
}

// A worker that opens its GPU ahead, says so on `control`, and waits there for what `serve` is started with.
int serve_later(int control, int status, const char* uuid, const char* const* hidden, int count) {
    Walls around = enter(hidden, count, nullptr, [](int) { return 0; });
    watched(status, {control});
    const char* why = gpu_open_alone(uuid);
    if (why) {
        fprintf(stderr, "worker: %s\n", why);
        _exit(kBroken);
    }
    send_frame(control, 'r');
    int given[3];  // channel, arena, artifact
    if (!receive_descriptors(control, given, 3)) _exit(0);  // it was not needed after all
    close(control);
    int candidate = walls::private_copy(given[2]);
    if (candidate < 0) broken("copy of the candidate");
    close(given[2]);
    worker(given[0], given[1], candidate, around);
}

#endif

void read_bundle(int bundle, void* to, size_t size, off_t at) {
    for (char* next = static_cast<char*>(to); size > 0;) {
        ssize_t n = pread(bundle, next, size, at);
        if (n <= 0) broken("bundle");
        next += n, at += n, size -= n;
    }
}

// Reads the setup frame of a staged call, and returns where its data begins.
off_t read_setup(int bundle) {
    uint64_t size = 0;
    read_bundle(bundle, &size, sizeof size, 0);
    if (size > sizeof setup_packet) broken("bundle");
    read_bundle(bundle, setup_packet, size, sizeof size);
    if (!parse_setup(setup_packet, size)) broken("bundle");
    return static_cast<off_t>(sizeof size + size);
}

int open_or_break(const char* path) {
    int fd = open(path, O_RDONLY);
    if (fd < 0) broken(path);
    return fd;
}

#ifdef ROOFCLIMB_GPU

// One call of `artifact` on staged data, between the marks that a profiler waits for.
int profiled(const char* bundle, const char* artifact, const char* uuid) {
    const int file = open_or_break(bundle);
    const off_t at = read_setup(file);
    char* data = static_cast<char*>(malloc(task.setup.slot_bytes));
    if (!data) broken("memory for the staged data");
    read_bundle(file, data, task.setup.slot_bytes, at);
    char text[1024];
    if (!load(open_or_break(artifact), text, sizeof text)) faulted(text);
    const char* why = task.setup.apart ? gpu_open_alone(uuid) : gpu_stage(uuid, data, task.setup.slot_bytes, &task.arena);
    if (!why && task.setup.apart)
        place_apart(data, [&why](const char* from, uint64_t bytes) {
            uint64_t address = 0;
            if (!why) why = gpu_place(from, bytes, &address);
            return address;
        });
    if (why) {
        fprintf(stderr, "%s\n", why);
        return kBroken;
    }
    Bound bound = bind_slot(task.arena);
    int64_t code = 0;
    why = gpu_profiled_call(solve_bound, &bound, &code);
    if (why) faulted(why);
    if (code != 0) fprintf(stderr, "solve returned %lld\n", static_cast<long long>(code));
    return code == 0 ? 0 : kFaulted;
}

#else

// As a shell would report it.
int exit_code(int how) { return WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how); }

uint64_t own_memory(const char* from, uint64_t bytes) {
    void* place = nullptr;
    if (posix_memalign(&place, kAlign, bytes) != 0) broken("memory for a tensor");
    if (from) memcpy(place, from, bytes);
    return reinterpret_cast<uint64_t>(place);
}

// One call, on descriptors that `solo` left. The data is read before the candidate is loaded.
int call() {
    const off_t data = read_setup(kBundle);
    map_arena(-1);
    char* slot = reinterpret_cast<char*>(task.arena);
    read_bundle(kBundle, slot, task.setup.slot_bytes, data);
    keep_only({kCandidate});
    if (task.setup.apart)
        place_apart(slot, own_memory);
    else
        fence_slot(slot);
    char why[1024];
    if (!load(kCandidate, why, sizeof why)) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    const int code = call_slot(0).code == 0 ? 0 : 1;
    if (task.setup.apart) _exit(code);  // as a worker ends: a pool of threads that is still there is no fault
    return code;
}

// Puts what `call` reads at the descriptors where it looks, in descriptors that no user id may be refused.
void hand_over(const char* bundle, const char* artifact) {
    const int from[] = {open_or_break(bundle), walls::private_copy(open_or_break(artifact)),
                        walls::private_copy(open_or_break("/proc/self/exe"))};
    int high[3];
    for (int i = 0; i < 3; i++)
        if (from[i] < 0 || (high[i] = fcntl(from[i], F_DUPFD, kSelf + 1)) < 0) broken("copy of the candidate");
    for (int i = 0; i < 3; i++)
        if (dup2(high[i], kBundle + i) < 0) broken("dup2");
    keep_only({kBundle, kCandidate, kSelf});
}

// `tool` is empty, or the words before those of the program that it runs; it writes to its working folder, `out`.
int solo(const char* bundle, const char* artifact, const char* const* hidden, int count, const char* out, char** tool,
         int words) {
    hand_over(bundle, artifact);
    Walls plan;
    if (out && plan.root && chown(out, plan.own_uid, plan.own_uid) != 0 &&
        chown(out, walls::kNobody, walls::kNobody) != 0)
        broken(out);
    Walls around = enter(hidden, count, out, exit_code);
    pid_t second = fork();
    if (second < 0) broken("fork");
    if (second > 0) {
        keep_only({});
        int how = 0;
        while (waitpid(second, &how, 0) < 0 && errno == EINTR) {
        }
        _exit(exit_code(how));
    }
    bool mounted = around.layers & walls::kMount, pid_namespace = around.layers & walls::kPid;
    if (chdir(!out ? (mounted ? "/tmp" : "/") : (mounted ? walls::kOut : out)) != 0) broken("chdir");
    around.close_in(out ? kToolFile : kServeFile, out != nullptr);
    if (!out) return call();
    static char program[] = "/proc/self/fd/5", mode[] = "--call", yes[] = "1", no[] = "0";
    static_assert(kSelf == 5, "its number is in `program`");
    char* line[kMaxWords + 4] = {};
    if (words > kMaxWords) broken("tool");
    std::copy(tool, tool + words, line);
    char* const rest[] = {program, mode, pid_namespace ? yes : no};
    std::copy(rest, rest + 3, line + words);
    execvp(line[0], line);
    broken(line[0]);
}

#endif

}  // namespace

int main(int argc, char** argv) {
#ifdef ROOFCLIMB_GPU
    // Before any folder is hidden. Only its functions are there then: nothing of it runs before it is called.
    const char* runtime = getenv("ROOFCLIMB_CUDART");
    if (runtime && !dlopen(runtime, RTLD_NOW | RTLD_GLOBAL)) {
        fprintf(stderr, "worker: %s\n", dlerror());
        return kBroken;
    }
    if (argc == 3 && strcmp(argv[1], "--probe") == 0) {
        const char* why = gpu_probe(argv[2]);
        if (why) fprintf(stderr, "%s\n", why);
        return why ? kBroken : 0;
    }
    if (argc == 5 && strcmp(argv[1], "--profiled") == 0) return profiled(argv[2], argv[3], argv[4]);
    if (argc >= 5 && strcmp(argv[1], "--serve-later") == 0)
        return serve_later(atoi(argv[2]), atoi(argv[3]), argv[4], argv + 5, argc - 5);
#endif
    if (argc >= 6 && strcmp(argv[1], "--serve") == 0)
        return serve(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), atoi(argv[5]), argv + 6, argc - 6);
#ifndef ROOFCLIMB_GPU
    if (argc == 3 && strcmp(argv[1], "--call") == 0) {  // started by a tool, which `solo` had to let be started
        walls::filter_system_calls(argv[2][0] == '1', false);
        return call();
    }
    char** end = argv + argc;
    char** dash = std::find_if(argv, end, [](const char* word) { return strcmp(word, "--") == 0; });
    if (dash - argv >= 4 && end - dash != 1 && end - dash != 2 && strcmp(argv[1], "--solo") == 0) {
        const int hidden = static_cast<int>(dash - argv) - 4;
        if (dash == end) return solo(argv[2], argv[3], argv + 4, hidden, nullptr, nullptr, 0);
        return solo(argv[2], argv[3], argv + 4, hidden, dash[1], dash + 2, static_cast<int>(end - dash) - 2);
    }
#endif
    fprintf(stderr,
            "usage: runner --serve CHANNEL ARENA ARTIFACT STATUS [HIDDEN ...]\n"
#ifdef ROOFCLIMB_GPU
            "       runner --serve-later CONTROL STATUS UUID [HIDDEN ...]\n"
            "       runner --profiled BUNDLE ARTIFACT UUID\n"
            "       runner --probe UUID\n");
#else
            "       runner --solo BUNDLE ARTIFACT [HIDDEN ...] [-- OUT TOOL [ARGUMENT ...]]\n");
#endif
    return 2;
}
