// The walls around a worker, put up before it loads a candidate. Each returns whether it stands.
#pragma once
#include <cstdint>

namespace walls {

enum Layer : uint64_t {
    kNetwork = 1,   // network namespace: no interface but a dead loopback
    kIpc = 2,       // System V and POSIX queues of its own
    kPid = 4,       // sees and signals no process but its own
    kMount = 8,     // everything read-only, private /tmp, /dev/shm and /proc, mathematics libraries hidden
    kUser = 16,     // no capability left, and: started by root, a user id that owns nothing (the worker's own, or
                    // nobody's where that is not granted); started by another user, nobody in a user namespace of the
                    // worker's own, which outside it is still that user: only kMount keeps it off that user's files
    kSeccomp = 32,  // no fork, exec, socket, ptrace, mount, ...
    kSealed = 64,   // code and constant tables that were mapped before the candidate stay as they are (seal.h)
};

constexpr unsigned kNobody = 65534;
constexpr const char* kOut = "/tmp/out";

// Unshares what the kernel grants, through a user namespace where the caller is not root (kUser then says that it
// stands). Call before forking.
uint64_t enter_namespaces();

// Makes the tree read-only, mounts private /tmp, /dev/shm and /proc, and puts nothing in the place of each of `hidden`.
// The folder `out`, unless null, is then at kOut, and writable. Needs kMount; /proc needs kPid and the caller to be the
// namespace's first process.
bool private_tree(const char* const* hidden, int count, const char* out);

// A copy in memory, which the worker's user may read whatever folder the file came from. Its descriptor, or -1.
int private_copy(int file);

// No privileges, an own user id (`own_uid`, for root outside a user namespace), not dumpable.
bool drop_privileges(bool root, unsigned own_uid);
void limit_resources(uint64_t file_bytes);

// Installs the system-call filter. Nothing after this may fork, nor exec unless `may_exec`.
bool filter_system_calls(bool pid_namespace, bool may_exec);

}  // namespace walls
