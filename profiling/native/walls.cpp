#include "walls.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace walls {
namespace {

bool write_file(const char* path, const char* text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool good = write(fd, text, strlen(text)) == static_cast<ssize_t>(strlen(text));
    close(fd);
    return good;
}

bool own_user_namespace() {
    unsigned uid = geteuid(), gid = getegid();
    if (unshare(CLONE_NEWUSER) != 0) return false;
    char line[64];
    write_file("/proc/self/setgroups", "deny");
    snprintf(line, sizeof line, "65534 %u 1", uid);
    if (!write_file("/proc/self/uid_map", line)) return false;
    snprintf(line, sizeof line, "65534 %u 1", gid);
    return write_file("/proc/self/gid_map", line);
}

bool hide(const char* path) {
    struct stat found;
    if (stat(path, &found) != 0) return true;
    if (!S_ISDIR(found.st_mode)) return mount("/dev/null", path, nullptr, MS_BIND, nullptr) == 0;
    return mount("tmpfs", path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=4k,mode=755") == 0;
}

bool no_capabilities() {
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2] = {}, left[2] = {};
    syscall(SYS_capset, &header, none);
    if (syscall(SYS_capget, &header, left) != 0) return false;
    return (left[0].permitted | left[1].permitted | left[0].effective | left[1].effective) == 0;
}

}  // namespace

uint64_t enter_namespaces() {
    uint64_t layers = 0;
    if (geteuid() != 0) {
        if (!own_user_namespace()) return 0;
        layers |= kUser;
    }
    if (unshare(CLONE_NEWNET) == 0) layers |= kNetwork;
    if (unshare(CLONE_NEWIPC) == 0) layers |= kIpc;
    if (unshare(CLONE_NEWPID) == 0) layers |= kPid;
    if (unshare(CLONE_NEWNS) == 0) layers |= kMount;
    return layers;
}

bool private_tree(const char* const* hidden, int count, const char* out) {
    struct {
        uint64_t set, clear, propagation, userns;
    } read_only = {1 /* MOUNT_ATTR_RDONLY */, 0, 0, 0};
    constexpr long kMountSetattr = 442;
    constexpr unsigned kRecursive = 0x8000;
    // Opened in this mount namespace, and before /tmp, in which it may lie, is hidden.
    int folder = out ? open(out, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (out && folder < 0) return false;
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
    if (syscall(kMountSetattr, AT_FDCWD, "/", kRecursive, &read_only, sizeof read_only) != 0) return false;
    for (int i = 0; i < count; i++)
        if (!hide(hidden[i])) return false;
    unsigned long flags = MS_NOSUID | MS_NODEV;
    if (mount("tmpfs", "/dev/shm", "tmpfs", flags, "size=4m,nr_inodes=256,mode=1777") != 0) return false;
    // A user namespace inside a container may not mount /proc; the old one then shows other processes, read-only.
    mount("proc", "/proc", "proc", flags | MS_NOEXEC, nullptr);
    if (mount("tmpfs", "/tmp", "tmpfs", flags, "size=64m,nr_inodes=1024,mode=1777") != 0) return false;
    if (!out) return true;
    char source[32];
    snprintf(source, sizeof source, "/proc/self/fd/%d", folder);
    bool good = mkdir(kOut, 0755) == 0 && mount(source, kOut, nullptr, MS_BIND, nullptr) == 0 &&
                mount(nullptr, kOut, nullptr, MS_REMOUNT | MS_BIND | MS_NOEXEC | flags, nullptr) == 0;
    close(folder);
    return good;
}

int private_copy(int from) {
    int to = static_cast<int>(syscall(SYS_memfd_create, "candidate", 0));
    if (to < 0) return -1;
    char block[1 << 16];
    off_t at = 0;
    for (;;) {
        ssize_t n = pread(from, block, sizeof block, at);
        if (n == 0) break;
        if (n < 0 || write(to, block, n) != n) return close(to), -1;
        at += n;
    }
    fchmod(to, 0555);
    return to;
}

bool drop_privileges(bool root, unsigned own_uid) {
    bool alone = false, changed = !root;
    if (root) {
        setgroups(0, nullptr);
        alone = setresgid(own_uid, own_uid, own_uid) == 0 && setresuid(own_uid, own_uid, own_uid) == 0;
        changed = alone || (setresgid(kNobody, kNobody, kNobody) == 0 && setresuid(kNobody, kNobody, kNobody) == 0);
    }
    bool bare = no_capabilities();
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (alone) {  // counted per user id, so only of use where the id is the worker's own
        rlimit threads = {512, 512};
        setrlimit(RLIMIT_NPROC, &threads);
    }
    return changed && bare;
}

void limit_resources(uint64_t file_bytes) {
    signal(SIGXFSZ, SIG_IGN);  // a write past the limit fails, and does not kill
    rlimit none = {0, 0}, file = {file_bytes, file_bytes}, files = {256, 256};
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_FSIZE, &file);
    setrlimit(RLIMIT_NOFILE, &files);
    write_file("/proc/self/oom_score_adj", "1000");
}

bool filter_system_calls(bool pid_namespace, bool may_exec) {
#if defined(__x86_64__)
    constexpr uint32_t kArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
    constexpr uint32_t kArch = AUDIT_ARCH_AARCH64;
#else
    (void)pid_namespace, (void)may_exec;
    return false;
#endif
#if defined(__x86_64__) || defined(__aarch64__)
    static const unsigned denied[] = {
#if defined(__x86_64__)
        SYS_fork, SYS_vfork,
#endif
        SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp, SYS_pidfd_open,
        SYS_pidfd_getfd, SYS_pidfd_send_signal, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo,
        SYS_socket, SYS_socketpair, SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_mount, SYS_umount2,
        SYS_pivot_root, SYS_chroot, SYS_setns, SYS_unshare, SYS_open_tree, SYS_move_mount, SYS_fsopen, SYS_fsconfig,
        SYS_fsmount, SYS_fspick, 442 /* mount_setattr */, SYS_kexec_load, SYS_kexec_file_load, SYS_init_module,
        SYS_finit_module, SYS_delete_module, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup,
        SYS_io_uring_enter, SYS_io_uring_register, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_memfd_create,
        447 /* memfd_secret */, SYS_shmget, SYS_shmat, SYS_msgget, SYS_semget, SYS_mq_open, SYS_sched_setaffinity,
        SYS_sched_setscheduler, SYS_sched_setparam, SYS_sched_setattr, SYS_setpriority, SYS_reboot, SYS_swapon,
        SYS_swapoff, SYS_settimeofday, SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex, SYS_personality,
        SYS_open_by_handle_at, SYS_quotactl, SYS_acct, SYS_syslog, SYS_sethostname, SYS_setdomainname,
        SYS_timer_create,
    };
    static const unsigned signals[] = {SYS_kill, SYS_tgkill, SYS_tkill};
    constexpr unsigned kCount = sizeof denied / sizeof denied[0];
    constexpr uint32_t kEperm = SECCOMP_RET_ERRNO | EPERM;
    sock_filter code[2 * kCount + 40];
    unsigned n = 0;
    code[n++] = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch));
    code[n++] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArch, 1, 0);
    code[n++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[n++] = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
    code[n++] = BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1);  // the x32 table
    code[n++] = BPF_STMT(BPF_RET | BPF_K, kEperm);
    auto deny = [&](unsigned number) {
        code[n++] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
        code[n++] = BPF_STMT(BPF_RET | BPF_K, kEperm);
    };
    for (unsigned number : denied) deny(number);
    if (!may_exec) deny(SYS_execve), deny(SYS_execveat);
    // Signals go to the process itself; tkill names a thread, so other processes' are safe only behind the namespace.
    for (unsigned number : signals) {
        if (number == SYS_tkill && pid_namespace) continue;
        code[n++] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4);
        code[n++] = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args));
        code[n++] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(getpid()), 0, 1);
        code[n++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        code[n++] = BPF_STMT(BPF_RET | BPF_K, kEperm);
    }
    // clone3 hides its flags behind a pointer: "not there" makes the C library fall back to clone.
    code[n++] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 435 /* clone3 */, 0, 1);
    code[n++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
    // clone may make threads only.
    code[n++] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3);
    code[n++] = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args));
    code[n++] = BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0);
    code[n++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN);
    code[n++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    sock_fprog program = {static_cast<unsigned short>(n), code};
    // Without SPEC_ALLOW older kernels slow every store of a filtered process down. TSYNC: a GPU's driver has threads.
    constexpr unsigned kFlags = SECCOMP_FILTER_FLAG_SPEC_ALLOW | SECCOMP_FILTER_FLAG_TSYNC;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, kFlags, &program) == 0) return true;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;  // valgrind knows no other way
#endif
}

}  // namespace walls
