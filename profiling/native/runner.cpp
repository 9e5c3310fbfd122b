// Runs one candidate behind walls and times its calls (--serve), or runs one call of it on data from a file (--solo).
//
// Three processes: the first enters the namespaces, the second is the first of the new PID namespace and reports how
// the third, the worker, ended. The worker loads the candidate before any input exists.
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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "protocol.h"
#include "stub.h"  // generated for the task's signature: call_solve(function, words)
#include "walls.h"

namespace {

constexpr int kBroken = 70;  // our own fault, before any candidate is loaded
constexpr const char* kPrivateArtifact = "/tmp/candidate.so";

// Resolved before a candidate is loaded, so that a symbol of its own cannot stand in for it.
int (*const volatile clock_now)(clockid_t, timespec*) = clock_gettime;

struct Task {
    wire::Setup setup;
    wire::Argument arguments[wire::kMaxArguments];
    int32_t cores[wire::kMaxCores];
    char* arena;
    void* solve;
};

Task task;

[[noreturn]] void broken(const char* what) {
    fprintf(stderr, "worker: %s: %s\n", what, strerror(errno));
    _exit(kBroken);
}

int64_t nanoseconds() {
    timespec t;
    clock_now(CLOCK_MONOTONIC_RAW, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

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
    task.arena = static_cast<char*>(base);
}

int64_t call_slot(uint32_t slot, int64_t* code) {
    uint64_t words[wire::kMaxArguments];
    char* base = task.arena + slot * task.setup.slot_bytes;
    for (uint32_t i = 0; i < task.setup.arguments; i++) {
        const wire::Argument& a = task.arguments[i];
        words[i] = a.tensor ? reinterpret_cast<uint64_t>(base + a.word) : a.word;
    }
    int64_t start = nanoseconds();
    *code = call_solve(task.solve, words);
    return nanoseconds() - start;
}

bool load(const char* path, char* text, size_t size) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
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
        wire::Run run;
        if (receive(channel, &run, sizeof run) != sizeof run) _exit(0);
        if (run.head.kind != wire::kRun || run.first + run.count > task.setup.slots) _exit(kBroken);
        for (uint32_t i = 0; i < run.count; i++)
            reply.calls[i].nanoseconds = call_slot(run.first + i, &reply.calls[i].code);
        reply.done = {{wire::kMagic, wire::kDone, run.head.token}, run.count};
        send_frame(channel, reply, sizeof reply.done + run.count * sizeof(wire::Call));
    }
}

void keep_only(int a, int b) {
    int low = a < b ? a : b, high = a < b ? b : a;
    if (low > 3) syscall(SYS_close_range, 3, low - 1, 0);
    if (high > low + 1) syscall(SYS_close_range, low + 1, high - 1, 0);
    syscall(SYS_close_range, high + 1, ~0U, 0);
}

[[noreturn]] void worker(int channel, int arena, const char* path, uint64_t layers, bool root, unsigned own_uid) {
    setsid();
    keep_only(channel, arena);
    static char packet[sizeof(wire::Setup) + sizeof task.arguments + sizeof task.cores];
    ssize_t size = receive(channel, packet, sizeof packet);
    if (size < 0 || !parse_setup(packet, size)) broken("setup frame");
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (uint32_t i = 0; i < task.setup.cores; i++) CPU_SET(task.cores[i], &cores);
    if (sched_setaffinity(0, sizeof cores, &cores) != 0) broken("sched_setaffinity");
    map_arena(arena);
    for (uint32_t i = 0; i < task.setup.slots; i++) {
        char* slot = task.arena + i * task.setup.slot_bytes;
        fence_slot(slot);
        populate(slot);
    }
    close(arena);
    if (chdir((layers & walls::kMount) ? "/tmp" : "/") != 0) broken("chdir");
    walls::limit_resources();
    if (walls::drop_privileges(root, own_uid)) layers |= walls::kUser;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of user id clears it, so after that
    if (walls::filter_system_calls()) layers |= walls::kSeccomp;

    send_frame(channel, wire::Hello{{wire::kMagic, wire::kHello, task.setup.head.token}, layers});
    wire::Head ask;
    if (receive(channel, &ask, sizeof ask) != sizeof ask || ask.kind != wire::kLoad) _exit(kBroken);
    wire::Loaded loaded = {{wire::kMagic, wire::kLoaded, ask.token}, 0, 0, {}};
    loaded.status = load(path, loaded.text, sizeof loaded.text) ? 0 : 1;
    send_frame(channel, loaded);
    serve_calls(channel);
    _exit(0);
}

// Reports the worker's wait status on `status` and ends, which ends whatever is left in the PID namespace.
[[noreturn]] void watch(pid_t pid, int status) {
    keep_only(status, status);
    int how = 0;
    while (waitpid(pid, &how, 0) < 0 && errno == EINTR) {
    }
    if (write(status, &how, sizeof how) != sizeof how) _exit(kBroken);
    _exit(0);
}

int serve(int channel, int arena, int artifact, int status, const char* path) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bool root = geteuid() == 0;
    unsigned own_uid = 200000U + static_cast<unsigned>(getpid());
    uint64_t layers = walls::enter_namespaces();
    pid_t first = fork();
    if (first < 0) broken("fork");
    if (first > 0) {
        keep_only(2, 2);
        while (waitpid(first, nullptr, 0) < 0 && errno == EINTR) {
        }
        return 0;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if ((layers & walls::kMount) && !walls::private_tree()) layers &= ~uint64_t(walls::kMount);
    if (layers & walls::kMount) {
        if (!walls::copy_candidate(artifact, kPrivateArtifact)) broken("copy of the candidate");
        path = kPrivateArtifact;
    }
    pid_t second = fork();
    if (second < 0) broken("fork");
    if (second > 0) watch(second, status);
    worker(channel, arena, path, layers, root, own_uid);
}

int solo(const char* bundle, const char* artifact) {
    FILE* file = fopen(bundle, "rb");
    if (!file) broken(bundle);
    static char packet[sizeof(wire::Setup) + sizeof task.arguments + sizeof task.cores];
    uint64_t size = 0;
    if (fread(&size, sizeof size, 1, file) != 1 || size > sizeof packet || fread(packet, size, 1, file) != 1 ||
        !parse_setup(packet, size))
        broken("bundle");
    map_arena(-1);
    if (fread(task.arena, task.setup.slot_bytes, 1, file) != 1) broken("bundle");
    fclose(file);
    fence_slot(task.arena);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    walls::limit_resources();
    char why[1024];
    if (!load(artifact, why, sizeof why)) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    int64_t code = 0;
    call_slot(0, &code);
    return code == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 7 && strcmp(argv[1], "--serve") == 0)
        return serve(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), atoi(argv[5]), argv[6]);
    if (argc == 4 && strcmp(argv[1], "--solo") == 0) return solo(argv[2], argv[3]);
    fprintf(stderr, "usage: runner --serve CHANNEL ARENA ARTIFACT STATUS PATH | --solo BUNDLE ARTIFACT\n");
    return 2;
}
