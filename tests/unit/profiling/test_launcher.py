"""Workers that open a GPU ahead: they serve like any other, and none is left over. The driver is a stand-in."""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.types import Parameter, Signature
from profiling.harness import protocol
from profiling.harness.arena import Layout
from profiling.harness.launcher import NativeLauncher
from profiling.harness.runner_build import build_native
from profiling.harness.worker import CandidateFailure, Worker
from profiling.types import Case, HarnessFault, Limits, Scalar, Tensor
from tests.leftovers import _running, still_running
from tests.unit.profiling.gpu_driver import needs_compiler

GPU = "GPU-01020304-0506-0708-090a-0b0c0d0e0f10"
DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef unsigned long long P;
static void tell(const char* what) { fprintf(stderr, "%s\n", what); }
int cuInit(unsigned f) { tell("init"); return getenv("DRIVER_BROKEN") ? 999 : 0; }
int cuDeviceGetCount(int* n) { *n = 1; return 0; }
int cuDeviceGet(int* d, int i) { *d = i; return 0; }
int cuDeviceGetUuid_v2(char* u, int d) { for (int i = 0; i < 16; i++) u[i] = i + 1; return 0; }
int cuDeviceGetUuid(char* u, int d) { return cuDeviceGetUuid_v2(u, d); }
int cuDeviceGetAttribute(int* v, int a, int d) { *v = a == 38 ? 1 << 20 : a == 39 ? 2048 : 1; return 0; }
int cuDevicePrimaryCtxRetain(void** c, int d) { tell("context"); *c = malloc(1); return 0; }
int cuCtxSetCurrent(void* c) { return 0; }
struct Handle { char b[64]; };
int cuIpcOpenMemHandle_v2(P* p, struct Handle h, unsigned f) { tell("arena"); *p = (P)malloc(1 << 20); return 0; }
int cuMemAlloc_v2(P* p, size_t n) { *p = (P)malloc(n); return 0; }
int cuMemcpyHtoD_v2(P p, const void* from, size_t n) { memcpy((void*)p, from, n); return 0; }
int cuMemcpyDtoH_v2(void* to, P p, size_t n) { memcpy(to, (void*)p, n); return 0; }
int cuEventCreate(void** e, unsigned f) { *e = malloc(1); return 0; }
int cuEventRecord(void* e, void* s) { return 0; }
int cuEventElapsedTime_v2(float* ms, void* a, void* b) { *ms = 2.5f; return 0; }
int cuEventElapsedTime(float* ms, void* a, void* b) { return cuEventElapsedTime_v2(ms, a, b); }
int cuStreamQuery(void* stream) { return 600; }
int cuCtxSynchronize(void) { return 0; }
int cuCtxResetPersistingL2Cache(void) { return 0; }
int cuProfilerStart(void) { return 0; }
int cuProfilerStop(void) { return 0; }
int cuGetErrorString(int r, const char** t) { *t = "made up"; return 0; }
int cuModuleLoadData(void** m, const void* d) { *m = malloc(1); return 0; }
int cuModuleGetFunction(void** f, void* m, const char* n) { *f = strdup(n); return 0; }
/* The lead spoils the last byte of each output and ends at 7000 ns; all is done 12345 ns later (told so: before). */
int cuLaunchKernel(void* f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h, void* s,
                   void** p, void** x) {
    P* at = *(P**)p[strcmp(f, "lead") ? 0 : 6];
    if (!strcmp(f, "lead"))
        for (unsigned i = 0; i < *(unsigned*)p[8]; i++) {
            P* output = *(P**)p[7] + 2 * i;
            ((char*)output[0])[output[1] - 1] = 85;
        }
    *at = !strcmp(f, "lead") ? 7000 : getenv("DRIVER_LATE") ? 6999 : 19345;
    return 0;
}
"""
# It writes nothing, and says if something else did.
KERNEL = r"""
#include <stdio.h>
extern "C" int solve(int n, unsigned char* y) {
    if (y[99]) fprintf(stderr, "found %d\n", y[99]);
    return n == 7 ? 0 : n;
}
"""

CALLS = 4

pytestmark = needs_compiler


@pytest.fixture(scope="module")
def parts() -> Iterator[tuple[Path, Path, Path]]:
    """Runner, kernel, and the folder of the driver: not below /tmp, which is hidden from workers."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="roofclimb-driver-") as folder:
        yield build_parts(Path(folder))


def build_driver(folder: Path) -> None:
    """The stand-in as `folder/libcuda.so.1`."""
    (folder / "driver.c").write_text(DRIVER)
    line = ("gcc", "-w", "-shared", "-fPIC", "driver.c", "-o", "libcuda.so.1")
    subprocess.run(line, cwd=folder, check=True)


def build_parts(folder: Path) -> tuple[Path, Path, Path]:
    folder.chmod(0o755)
    build_driver(folder)
    (folder / "kernel.cpp").write_text(KERNEL)
    subprocess.run(("g++", "-shared", "-fPIC", "kernel.cpp", "-o", "kernel.so"), cwd=folder, check=True)
    n = Parameter("n", "int", "int32", pointer=False, const=False)
    signature = Signature((n, Parameter("y", "unsigned char", "uint8", pointer=True, const=False)), "int")
    return build_native(signature, folder, gpu=True).runner, folder / "kernel.so", folder


class Arena:
    """What a worker needs of one on a GPU."""

    def __init__(self) -> None:
        arguments = (Scalar("n", "int32", 7), Tensor("y", (100,), "uint8", "out"))
        self.layout, self.slots = Layout.of(Case({}, arguments), gap=0), CALLS
        self.fd = os.memfd_create("arena")
        os.write(self.fd, struct.pack("=48s64sQ", GPU.encode(), b"", 1 << 20))


def launcher(parts: tuple[Path, Path, Path], **more: str) -> NativeLauncher:
    return NativeLauncher(parts[0], {"LD_LIBRARY_PATH": str(parts[2]), **more}, GPU)


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def serve(started: NativeLauncher, kernel: Path, lead_us: int = 0) -> tuple[protocol.Call, list[str]]:
    """One call, and what the driver was asked for."""
    (call,), said = serve_calls(started, kernel, 1, lead_us)
    return call, said


def serve_calls(
    started: NativeLauncher, kernel: Path, count: int, lead_us: int, *, together: bool = False
) -> tuple[list[protocol.Call], list[str]]:
    arena = Arena()
    worker = Worker(started, kernel, arena, cores(), Limits(10.0, None))  # type: ignore[arg-type]
    try:
        worker.ready()
        calls = worker.run(0, count, "a call", lead_us, together=together).calls
        return list(calls), worker.evidence().split()
    finally:
        worker.kill()
        os.close(arena.fd)


def test_a_worker_that_waited_serves_like_any_other(parts: tuple[Path, Path, Path]) -> None:
    started = launcher(parts)
    started.prepare(2, cores())
    waiting = [os.pread(w.child.ends.output, 100, 0).split() for w in started._waiting]
    assert waiting == [[b"init", b"context"]] * 2
    for _ in range(3):  # the third is started when it is asked for
        call, asked = serve(started, parts[1])
        assert (call.code, call.nanoseconds) == (0, 2_500_000)
        assert asked == ["init", "context", "arena"]
    started.close()


def test_a_call_behind_a_lead_counts_from_its_end_and_nothing_was_there_before(
    parts: tuple[Path, Path, Path],
) -> None:
    """By the device's own timer: an event behind the lead may come late, and be told a shorter time."""
    call, asked = serve(launcher(parts), parts[1], lead_us=20)
    assert call.nanoseconds == 12345
    assert asked[-2:] == ["found", "85"]  # what might have been written before is spoiled
    with pytest.raises(CandidateFailure, match="clocks disagree"):
        serve(launcher(parts, DRIVER_LATE="1"), parts[1], lead_us=20)


@pytest.mark.parametrize(("together", "nanoseconds"), [(False, 12345), (True, 12345 // CALLS)])
def test_calls_are_timed_each_behind_a_lead_of_its_own_or_as_one_batch(
    parts: tuple[Path, Path, Path], *, together: bool, nanoseconds: int
) -> None:
    calls, said = serve_calls(launcher(parts), parts[1], CALLS, 20, together=together)
    assert [call.nanoseconds for call in calls] == [nanoseconds] * CALLS
    assert said[-2 * CALLS :] == ["found", "85"] * CALLS


def test_those_that_were_not_needed_are_ended(parts: tuple[Path, Path, Path]) -> None:
    started = launcher(parts)
    started.prepare(2, cores())
    assert _running(parts[0])
    started.close()
    assert not still_running(parts[0])


def test_one_that_ended_while_it_waited_is_replaced(parts: tuple[Path, Path, Path]) -> None:
    started = launcher(parts)
    started.prepare(1, cores())
    started._waiting[0].child.end()
    assert serve(started, parts[1])[0].code == 0
    started.close()


def test_a_gpu_that_cannot_be_opened_is_told_where_it_is_needed(parts: tuple[Path, Path, Path]) -> None:
    started = launcher(parts, DRIVER_BROKEN="1")
    started.prepare(1, cores())
    with pytest.raises(HarnessFault, match=r"(?s)did not start.*cuInit: CUDA error 999, made up"):
        serve(started, parts[1])
    assert not still_running(parts[0])
