"""The code and tables around a kernel stay as they are, whatever it asks of the system; its own memory is its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiling.harness.harness import Harness
from profiling.harness.triton_launcher import build_library
from profiling.types import Limits, MeasureSettings
from tests.kernels import GEMM_FAST, compile_kernel, gemm_problem
from tests.unit.profiling.gpu_driver import needs_compiler
from tests.unit.profiling.test_launcher import GPU, build_driver, build_parts, launcher, serve

NATIVE = Path(__file__).parents[3] / "profiling" / "native"
SETTINGS = MeasureSettings(warmup_ms=1.0, min_time_s=0.005)
pytestmark = needs_compiler

# Says which of all ways to change the pages of `place` the system grants, and leaves the pages as they are meanwhile.
CHANGES = r"""
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static char* page_of(const void* at) { return (char*)((uintptr_t)at & ~(uintptr_t)4095); }

static const char* granted(char* page) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char* mine = (char*)mmap(nullptr, 8192, PROT_READ | PROT_WRITE, flags, -1, 0);
    const struct { const char* name; long result; int code; } tried[] = {
        {"mprotect", mprotect(page, 4096, PROT_READ), errno},
        {"mprotect from before", mprotect(page - 4096, 4097, PROT_READ), errno},
        {"pkey_mprotect", syscall(SYS_pkey_mprotect, page, 4096, PROT_READ, -1), errno},
        {"munmap", munmap(page, 4096), errno},
        {"madvise", madvise(page, 4096, MADV_DONTNEED), errno},
        {"mmap", (long)mmap(page, 4096, PROT_READ, flags | MAP_FIXED, -1, 0), errno},
        {"mremap of it", (long)mremap(page, 4096, 8192, MREMAP_MAYMOVE), errno},
        {"mremap over it", (long)mremap(mine, 8192, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, page), errno},
        {"remap_file_pages", syscall(SYS_remap_file_pages, page, 4096, 0, 0, 0), errno},
        {"process_madvise", syscall(440, 0, nullptr, 0, MADV_COLD, 0), errno},
    };
    munmap(mine, 8192);
    for (const auto& one : tried)
        if (one.result != -1 || one.code != EPERM) return one.name;
    return nullptr;
}

static int look(dl_phdr_info* object, size_t, void*) {
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const auto& part = object->dlpi_phdr[i];
        const bool relro = part.p_type == PT_GNU_RELRO && part.p_memsz >= 4096;
        if (!relro && (part.p_type != PT_LOAD || (part.p_flags & PF_W))) continue;
        if (strstr(object->dlpi_name, "memfd:") || strstr(object->dlpi_name, "/fd/")) continue;  // the kernel itself
        if (const char* what = granted(page_of((void*)(object->dlpi_addr + part.p_vaddr)))) {
            fprintf(stderr, "%s of %s", what, object->dlpi_name);
            abort();
        }
    }
    return 0;
}
"""
ATTEMPT = r"""
__attribute__((constructor)) static void attempt() {
    if (dl_iterate_phdr(look, nullptr) != 0) abort();
    char* vdso = (char*)getauxval(AT_SYSINFO_EHDR);
    if (vdso && (granted(vdso) || granted(vdso - 4096))) fputs("the clock's data", stderr), abort();
}
"""
# What would undo the seal by another way than the pages themselves.
DETOURS = (
    'prctl(PR_SET_DUMPABLE, 1) == 0 || open("/proc/self/mem", O_RDWR) >= 0',
    "prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &size, 0, 0) == 0 || errno != EPERM",
    "prctl(PR_SET_TSC, PR_TSC_ENABLE) == 0",
    "prctl(59 /* PR_SET_SYSCALL_USER_DISPATCH */, 0, 0, 0, 0) == 0 || errno != EPERM",
    "prctl(PR_SET_SECCOMP, 2, nullptr) == 0 || errno != EPERM",
    "syscall(SYS_seccomp, 2, 0, nullptr) == 0 || errno != EPERM",
)
OWN = r"""
#include <thread>
static char* own;
__attribute__((constructor)) static void remap_own_memory() {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    own = (char*)mmap(nullptr, 16384, PROT_READ | PROT_WRITE, flags, -1, 0);
    const bool all = mprotect(own, 4096, PROT_READ) == 0 && mprotect(own, 4096, PROT_READ | PROT_WRITE) == 0 &&
                     mmap(own, 4096, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0) == own &&
                     mremap(own, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, own + 8192) == own + 8192 &&
                     madvise(own + 8192, 4096, MADV_DONTNEED) == 0 && munmap(own + 12288, 4096) == 0;
    std::thread writes([] { own[8192] = 7; });
    writes.join();
    if (!all || own[8192] != 7) abort();
}
"""


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    folder = tmp_path_factory.mktemp("seal")
    with Harness(gemm_problem(folder), SETTINGS, Limits(call_s=2.0), folder / "cache") as made:
        made.check_task(compile_kernel(GEMM_FAST, folder, "fast"))
        if not made.layers()["sealed"]:
            pytest.skip("this machine does not grant the layer sealed")
        yield made


def test_no_page_of_what_was_loaded_before_a_kernel_can_be_mapped_anew(harness: Harness, tmp_path: Path) -> None:
    """Else it puts a clock of its own there, of the C library, the vdso or the driver."""
    kernel = compile_kernel(CHANGES + ATTEMPT + GEMM_FAST, tmp_path, "changes")
    found = harness.evaluate(kernel)
    assert found.verdict == "pass", found.reason


@pytest.mark.parametrize("detour", DETOURS)
def test_nor_written_by_another_way(harness: Harness, tmp_path: Path, detour: str) -> None:
    attempt = f"__attribute__((constructor)) static void attempt() {{ unsigned size; if ({detour}) abort(); }}"
    kernel = compile_kernel(CHANGES + attempt + GEMM_FAST, tmp_path, "detour")
    found = harness.evaluate(kernel)
    assert found.verdict == "pass", found.reason


def test_what_a_kernel_maps_itself_is_its_own_and_threads_start(harness: Harness, tmp_path: Path) -> None:
    found = harness.evaluate(compile_kernel(CHANGES + OWN + GEMM_FAST, tmp_path, "own"))
    assert found.verdict == "pass", found.reason


# Seals the first intervals, and says of each of the others whether a call on it is refused.
EDGES = r"""
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "seal.h"
int main(int argc, char** argv) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    const int sealed = atoi(argv[1]);
    std::vector<seal::Range> ranges;
    for (int i = 0; i < sealed; i++)
        ranges.push_back({strtoull(argv[2 + 2 * i], 0, 0), strtoull(argv[3 + 2 * i], 0, 0)});
    if (!seal::refuse_changes(ranges)) return 2;
    for (int i = 2 + 2 * sealed; i + 1 < argc; i += 2) {
        const unsigned long begin = strtoul(argv[i], 0, 0), size = strtoul(argv[i + 1], 0, 0);
        // No page is mapped at these places: what is not refused fails otherwise.
        const bool there = syscall(SYS_mprotect, begin, size, PROT_READ) == -1 && errno == EPERM;
        const int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
        const bool over = syscall(SYS_mremap, 0x10000, 4096, size, flags, begin) == -1 && errno == EPERM;
        if (over != there) return 3;
        putchar(there ? 'x' : '.');
    }
}
"""
LOW, HIGH = (0x40000000, 0x40003000), (0xFFFFF000, 0x100002000)  # one reaches over 2^32
FAR = (0x7F0012345000, 0x7F0012346000)


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("edges")
    (folder / "edges.cpp").write_text(EDGES)
    program = folder / "edges"
    units = [str(folder / "edges.cpp"), str(NATIVE / "seal.cpp")]
    subprocess.run(["g++", "-std=c++17", f"-I{NATIVE}", *units, "-o", str(program)], check=True)
    return program


def refused(program: Path, sealed: list[tuple[int, int]], calls: list[tuple[int, int]]) -> str:
    """An `x` for each call (address, size) that is refused, and a dot for each that is not."""
    words = [str(word) for pair in (*sealed, *calls) for word in pair]
    done = subprocess.run([str(program), str(len(sealed)), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.returncode
    return done.stdout


@pytest.mark.parametrize(
    ("begin", "size", "hit"),
    [
        (LOW[0] - 0x2000, 0x2000, False),  # ends where the range begins
        (LOW[0] - 0x2000, 0x2001, True),
        (LOW[1] - 0x1000, 0x1000, True),
        (LOW[1], 0x1000, False),  # begins where it ends
        (LOW[0] - 0x1000, 0x10000, True),  # all of it
        (LOW[0] + 0x1000, 0x1000, True),  # within
        (HIGH[0] - 0x1000, 0x1000, False),
        (HIGH[0] - 0x1000, 0x1001, True),
        (HIGH[0] - 0x5000, 0x5000 + 0x1001, True),  # the sum carries
        (HIGH[0] - 0x5000, 0x5000, False),
        (0x100001000, 0x1000, True),
        (0x100002000, 0x1000, False),
        (FAR[0] - 0x1000, 0x1000, False),
        (FAR[0] - 0x1000, 0x1001, True),
        (FAR[0] - 0x12345000, 0x12345000, False),
        (FAR[0] - 0x12345000, 0x12345001, True),
        (FAR[1], 0x1000, False),
        (FAR[0] - (1 << 32), 0x1000, False),  # its low words alone are those of the range
        (FAR[0] - (1 << 32), (1 << 32) + 1, True),
        (FAR[0] | 1 << 56, 0x1000, True),  # a byte that a kernel may ignore
        (1 << 63, 0x1000, True),
        ((1 << 64) - 0x1000, 0x1000, True),  # the sum is 2^64
        ((1 << 64) - 0x1000, 0x40002000, True),  # wraps around to end in a range
        (FAR[1], (1 << 64) - 0x1000, True),
        (FAR[1], (1 << 56) - 1, False),
    ],
)
def test_a_call_is_refused_that_meets_a_range_and_no_other(edges: Path, begin: int, size: int, hit: bool) -> None:
    assert refused(edges, [LOW, HIGH, FAR], [(begin, size)]) == ("x" if hit else ".")


def test_more_ranges_than_one_filter_holds(edges: Path) -> None:
    """A Triton worker has those of torch's libraries."""
    sealed = [(i << 24, (i << 24) + 4096) for i in range(1, 800)]
    calls = [(begin + offset, 4096) for begin, _ in (sealed[0], sealed[400], sealed[-1]) for offset in (0, 4096)]
    assert refused(edges, sealed, calls) == "x.x.x."


# The table of driver functions lies in the program, and what points into the driver is in it.
POINTERS = r"""
static int table(dl_phdr_info* object, size_t, void* function) {
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const auto& part = object->dlpi_phdr[i];
        if (part.p_type != PT_LOAD || !(part.p_flags & PF_W)) continue;
        void** at = (void**)((object->dlpi_addr + part.p_vaddr + 7) & ~size_t(7));
        void** const end = (void**)(object->dlpi_addr + part.p_vaddr + part.p_memsz - 7);
        for (; at < end; at++)
            if (*at == function) {
                const char* what = granted(page_of(at));
                fprintf(stderr, "table %s", what ? what : "kept");
            }
    }
    return 1;  // the program comes first
}
extern "C" int cuCtxSynchronize(void);
extern "C" int solve(int n, unsigned char* y) {
    dl_iterate_phdr(table, (void*)cuCtxSynchronize);
    return 0;
}
"""


def test_the_table_of_driver_functions_stays_as_it_was_resolved() -> None:
    """What points to the driver's clock would else point to the kernel's."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="roofclimb-seal-") as name:
        parts = build_parts(Path(name))
        (parts[2] / "kernel.cpp").write_text(CHANGES + POINTERS)
        line = ("g++", "-shared", "-fPIC", "kernel.cpp", "libcuda.so.1", "-o", "kernel.so")
        subprocess.run(line, cwd=parts[2], check=True)
        _, said = serve(launcher(parts), parts[1])
        assert said[-2:] == ["table", "kept"]


# As a Triton worker does before it loads a kernel, with the same libraries, and a stand-in for the driver.
CHILD = """
import ctypes, os, sys, threading
from pathlib import Path
import torch, triton
from profiling.harness import triton_native as native
parts = native.Native(Path(sys.argv[1]))
memory = parts.stage(sys.argv[2], bytes(400))
layers = parts.close_in(0, os.geteuid() == 0, 65534)
print(bool(layers & native.SEALED))
system = ctypes.CDLL(None, use_errno=True)
def granted(address):
    done = system.mprotect(ctypes.c_void_p(address & ~4095), ctypes.c_size_t(4096), 7)
    return done == 0 or ctypes.get_errno() != 1
functions = [system.clock_gettime, ctypes.pythonapi.Py_IsInitialized, ctypes.CDLL("libcuda.so.1").cuCtxSynchronize]
places = [ctypes.cast(function, ctypes.c_void_p).value for function in (*functions, parts._library.gpu_calls)]
table = native._Range()
parts._library.gpu_freeze(ctypes.byref(table))
print([granted(place) for place in (*places, table.address)])
thread = threading.Thread(target=lambda: print(torch.ones(1000, 1000).sum().item()))
thread.start(), thread.join()
print(*(t.synced for t in parts.timed([lambda: None, lambda: None], 20, True, [[(memory, 50)]] * 2, together=True)))
"""


def test_a_triton_workers_libraries_are_sealed_and_its_work_goes_on(tmp_path: Path) -> None:
    build_driver(tmp_path)
    command = [sys.executable, "-c", CHILD, str(build_library(tmp_path / "cache")), GPU]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:4] == ["True", "[False, False, False, False, False]", "1000000.0", "12345"], (
        done.stderr
    )
