// The walls around a worker, put up before it loads a candidate. Each returns whether it stands.
#pragma once
#include <cstdint>

namespace walls {

enum Layer : uint64_t {
    kNetwork = 1,   // network namespace: no interface but a dead loopback
    kIpc = 2,       // System V and POSIX queues of its own
    kPid = 4,       // sees and signals no process but its own
    kMount = 8,     // everything read-only, private /tmp, /dev/shm and /proc
    kUser = 16,     // an unprivileged user id of its own
    kSeccomp = 32,  // no fork, exec, socket, ptrace, mount, ...
};

// Unshares what the kernel grants, through a user namespace where the caller is not root. Call before forking.
uint64_t enter_namespaces();

// Makes the tree read-only and mounts private /tmp, /dev/shm and /proc. On false no mount point is hidden.
// Needs kMount; /proc needs kPid and the caller to be the namespace's first process.
bool private_tree();

// Copies the candidate into the private /tmp, where the worker's user may read it whatever folder it came from.
bool copy_candidate(int artifact, const char* path);

// No privileges, an own user id (`own_uid`, for root outside a user namespace), not dumpable.
bool drop_privileges(bool root, unsigned own_uid);
void limit_resources();

// Installs the system-call filter. Nothing after this may fork or exec.
bool filter_system_calls();

}  // namespace walls
