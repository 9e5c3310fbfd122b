#include "seal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace seal {
namespace {

using Code = std::vector<sock_filter>;

constexpr size_t kMostRanges = 360;  // of one filter, of at most 4096 instructions
constexpr uint32_t kProcessMadvise = 440, kSyscallUserDispatch = 59;  // unknown to older headers
// Where a filter keeps the interval that a call names, [begin, end), in words of 32 bits.
enum Word : uint32_t { kBeginLow, kBeginHigh, kEndLow, kEndHigh };

void put(Code& code, unsigned what, uint32_t value) { code.push_back(BPF_STMT(static_cast<uint16_t>(what), value)); }

// Skips `yes` instructions where the accumulator compares as `what` says, and `no` where it does not.
void jump(Code& code, unsigned what, uint32_t value, size_t yes, size_t no) {
    code.push_back(BPF_JUMP(static_cast<uint16_t>(BPF_JMP | what), value, static_cast<uint8_t>(yes),
                            static_cast<uint8_t>(no)));
}

void allow(Code& code) { put(code, BPF_RET | BPF_K, SECCOMP_RET_ALLOW); }
void refuse(Code& code) { put(code, BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM); }
void load_number(Code& code) { put(code, BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)); }

// Little-endian, as both machines that have a filter are.
void load_low(Code& code, unsigned argument) {
    put(code, BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + 8 * argument);
}

// Refuses a word of 2^56 bytes and more. Nothing real is as large, and two such sums have room: none wraps around. The
// kernel ignores the highest byte of an address (arm64, and x86 where asked to), so one that is set may hide a hit.
void load_high(Code& code, unsigned argument) {
    put(code, BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + 8 * argument + 4);
    jump(code, BPF_JGE | BPF_K, 1 << 24, 0, 1);
    refuse(code);
}

// Leaves the interval of `size` bytes from `begin`, both arguments of the call, in scratch memory.
void load_interval(Code& code, unsigned begin, unsigned size) {
    load_low(code, size);
    put(code, BPF_MISC | BPF_TAX, 0);
    load_low(code, begin);
    put(code, BPF_ST, kBeginLow);
    put(code, BPF_ALU | BPF_ADD | BPF_X, 0);
    put(code, BPF_ST, kEndLow);
    jump(code, BPF_JGE | BPF_X, 0, 2, 0);  // a sum below one of its terms has wrapped around: carry one
    put(code, BPF_LD | BPF_IMM, 1);
    put(code, BPF_JMP | BPF_JA, 1);
    put(code, BPF_LD | BPF_IMM, 0);
    put(code, BPF_ST, kEndHigh);
    load_high(code, size);
    put(code, BPF_LDX | BPF_MEM, kEndHigh);
    put(code, BPF_ALU | BPF_ADD | BPF_X, 0);
    put(code, BPF_MISC | BPF_TAX, 0);
    load_high(code, begin);
    put(code, BPF_ST, kBeginHigh);
    put(code, BPF_ALU | BPF_ADD | BPF_X, 0);
    put(code, BPF_ST, kEndHigh);
}

// Skips `yes` instructions where the number in the words `low` and `low` + 1 is above `value`, and `no` where it is not.
void jump_above(Code& code, Word low, uint64_t value, size_t yes, size_t no) {
    const uint32_t low_word = static_cast<uint32_t>(value), high_word = static_cast<uint32_t>(value >> 32);
    put(code, BPF_LD | BPF_MEM, low + 1);
    jump(code, BPF_JGT | BPF_K, high_word, yes + 3, 0);
    jump(code, BPF_JEQ | BPF_K, high_word, 0, no + 2);
    put(code, BPF_LD | BPF_MEM, low);
    jump(code, BPF_JGT | BPF_K, low_word, yes, no);
}

struct Calls {
    std::vector<uint32_t> always;  // their interval counts
    uint32_t flagged, flag;        // so does this one's, where its fourth argument has this flag
    unsigned begin, size;          // the arguments that are the interval
};

// A filter that refuses those of `calls` whose interval meets one of the ranges, of which there are kMostRanges at most.
// The kernel takes only whole pages, and rounds sizes up to them: so rounded an interval meets the same whole pages.
// An interval without a byte meets what it lies within; nobody needs such a call.
Code refuse_intervals(const Calls& calls, const Range* first, const Range* last) {
    Code code;
    const size_t others = calls.always.size();
    load_number(code);
    jump(code, BPF_JEQ | BPF_K, calls.flagged, 0, 3);
    load_low(code, 3);
    jump(code, BPF_JSET | BPF_K, calls.flag, others + 2, 0);  // to the interval
    allow(code);
    for (size_t i = 0; i < others; i++) jump(code, BPF_JEQ | BPF_K, calls.always[i], others - i, 0);
    allow(code);
    load_interval(code, calls.begin, calls.size);
    for (const Range* range = first; range < last; range++) {
        jump_above(code, kEndLow, range->begin, 0, 6);      // it ends before the range: on to the next one
        jump_above(code, kBeginLow, range->end - 1, 1, 0);  // it begins behind it: the same
        refuse(code);
    }
    allow(code);
    return code;
}

// What takes no address to look at, or would undo the rest. Comes last: it lets no filter be added.
Code refuse_wholly() {
    static const uint32_t calls[] = {
        SYS_remap_file_pages, kProcessMadvise,
        SYS_seccomp,  // another filter could answer for the clock
    };
    static const uint32_t options[] = {
        PR_SET_DUMPABLE,       // would make /proc/self/mem the candidate's
        PR_SET_MM,             // moves the heap's begin, and brk unmaps what lies behind it
        PR_SET_SECCOMP,        // as above
        PR_SET_TSC,            // faults where the clock reads the processor's counter, for a handler to answer
        kSyscallUserDispatch,  // the same for system calls
    };
    Code code;
    load_number(code);
    for (uint32_t call : calls) {
        jump(code, BPF_JEQ | BPF_K, call, 0, 1);
        refuse(code);
    }
    jump(code, BPF_JEQ | BPF_K, SYS_prctl, 1, 0);
    allow(code);
    load_low(code, 0);
    for (uint32_t option : options) {
        jump(code, BPF_JEQ | BPF_K, option, 0, 1);
        refuse(code);
    }
    allow(code);
    return code;
}

bool install(Code code) {
    sock_fprog program = {static_cast<unsigned short>(code.size()), code.data()};
    constexpr unsigned kFlags = SECCOMP_FILTER_FLAG_SPEC_ALLOW | SECCOMP_FILTER_FLAG_TSYNC;  // as in walls.cpp
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, kFlags, &program) == 0;
}

std::vector<Range> merged(std::vector<Range> ranges) {
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
    std::vector<Range> result;
    for (const Range& range : ranges) {
        if (range.begin >= range.end) continue;
        if (result.empty() || range.begin > result.back().end)
            result.push_back(range);
        else
            result.back().end = std::max(result.back().end, range.end);
    }
    return result;
}

int add_object(dl_phdr_info* object, size_t, void* to) {
    const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const auto& part = object->dlpi_phdr[i];
        const bool relocated = part.p_type == PT_GNU_RELRO;
        if (!relocated && (part.p_type != PT_LOAD || (part.p_flags & PF_W))) continue;
        const uint64_t begin = object->dlpi_addr + part.p_vaddr, end = begin + part.p_memsz;
        const uint64_t last = relocated ? end : end + page - 1;  // what shares a page with other data stays writable
        static_cast<std::vector<Range>*>(to)->push_back({begin / page * page, last / page * page});
    }
    return 0;
}

// What the vdso reads lies before it, under names such as [vvar] and [vvar_vclock].
bool add_clock_data(std::vector<Range>* ranges) {
    FILE* maps = fopen("/proc/self/maps", "re");
    if (!maps) return false;
    char line[512];
    bool any = false;
    while (fgets(line, sizeof line, maps)) {
        unsigned long long begin, end;
        if (sscanf(line, "%llx-%llx", &begin, &end) != 2) continue;
        any = true;
        if (strstr(line, " [vvar")) ranges->push_back({begin, end});
    }
    fclose(maps);
    return any;
}

}  // namespace

std::vector<Range> constant_ranges() {
    std::vector<Range> ranges;
    dl_iterate_phdr(add_object, &ranges);
    return add_clock_data(&ranges) ? merged(ranges) : std::vector<Range>();
}

bool refuse_changes(std::vector<Range> ranges) {
#if defined(__x86_64__) || defined(__aarch64__)
    const Calls kinds[] = {
        // mremap: of what lies there; mmap elsewhere than where it is told to is harmless.
        {{SYS_mprotect, SYS_pkey_mprotect, SYS_munmap, SYS_madvise, SYS_mremap}, SYS_mmap, MAP_FIXED, 0, 1},
        {{}, SYS_mremap, MREMAP_FIXED, 4, 2},  // and of where that is to lie
    };
    ranges = merged(ranges);
    for (const Calls& calls : kinds)
        for (size_t at = 0; at < ranges.size(); at += kMostRanges) {
            const Range* first = ranges.data() + at;
            if (!install(refuse_intervals(calls, first, first + std::min(kMostRanges, ranges.size() - at)))) return false;
        }
    return install(refuse_wholly());
#else
    return false;
#endif
}

bool put_on(std::vector<Range> own) {
    std::vector<Range> ranges = constant_ranges();
    if (ranges.empty()) return false;
    ranges.insert(ranges.end(), own.begin(), own.end());
    if (!refuse_changes(ranges)) return false;
    const int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    if (memory < 0) return true;
    close(memory);
    return false;
}

}  // namespace seal
