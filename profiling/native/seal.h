// Keeps a candidate from changing the code and the constant tables that are mapped around it, its worker's clock among
// them: the last wall, put up once everything of ours is loaded and before the candidate is.
#pragma once
#include <stdint.h>

#include <vector>

namespace seal {

// Whole pages, [begin, end).
struct Range {
    uint64_t begin, end;
};

// What is loaded and not to be written: of every object its segments that are not writable, and what the loader made
// read-only after it had relocated it; the vdso among them, and the data that its clock reads. Ascending, and none where
// /proc does not say where that data lies.
std::vector<Range> constant_ranges();

// From now on, and in all threads, a system call that would change how a page of these is mapped fails with EPERM. False
// where the kernel does not grant it. Needs no_new_privs, and what walls::filter_system_calls denies denied.
bool refuse_changes(std::vector<Range> ranges);

// Both, for what is loaded now and `own` pages beside. False too where /proc/self/mem, which writes past any protection,
// can be opened.
bool put_on(std::vector<Range> own);

}  // namespace seal
