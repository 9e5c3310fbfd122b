"""A candidate that breaks, or tries to break the machine, fails alone: the reason says how, and nothing of it is left.

Each computes a right product first, so that the fault alone is what fails it. What a fault has in common with a cheat
(crashes, hangs, memory, threads without end) lies in `cpp/`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from profiling.harness.harness import Harness
from profiling.types import Limits, MeasureSettings
from tests.kernels import GEMM_FAST, GEMM_HEAD, GEMM_NAIVE, compile_kernel, gemm_problem
from tests.leftovers import files_named, still_running

MARK = f"roofclimb-fault-{uuid.uuid4().hex}"
HEADERS = ("errno", "fcntl", "pthread", "signal", "stdio", "stdlib", "string", "sys/syscall", "unistd")
BEFORE = "".join(f"#include <{name}.h>\n" for name in HEADERS) + "#include <initializer_list>\nstatic float* out;\n"
FULL = """
static void fault() {
    static char block[1 << 20];
    memset(block, 1, sizeof block);
    for (const char* folder : {"/tmp", "/dev/shm", "/var/tmp"})
        for (int i = 0; i < 4096; i++) {
            char name[128];
            snprintf(name, sizeof name, "%s/MARK-%d", folder, i);
            int fd = open(name, O_CREAT | O_WRONLY, 0666);
            if (fd < 0 || write(fd, block, sizeof block) != sizeof block) break;
            close(fd);
        }
    int fd = open("/tmp/needed", O_CREAT | O_WRONLY, 0666);
    if (fd < 0 || write(fd, block, 1 << 19) != 1 << 19) fprintf(stderr, "scratch: %s\\n", strerror(errno)), abort();
}
""".replace("MARK", MARK)
OUTPUT = """
static void fault() {
    static char line[1 << 20];
    memset(line, 'x', sizeof line);
    for (int i = 0; i < 4096; i++)
        for (int fd : {1, 2})
            if (write(fd, line, sizeof line) < 0 && errno != EFBIG) abort();
}
"""
CHILD = """
static void fault() {
    pid_t child = fork();
    if (child < 0) child = vfork();
    if (child < 0) child = syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
    if (child < 0) fprintf(stderr, "child: %s\\n", strerror(errno)), abort();
    if (child == 0) {
        if (fork() != 0) _exit(0);
        setsid();
        for (;;) pause();
    }
}
"""
BOMB = "static void fault() { for (;;) fork(); }\n"
THREAD = """
static void* later(void*) {
    BODY
    return nullptr;
}
static void fault() {
    static bool started;
    pthread_t thread;
    if (!started) pthread_create(&thread, nullptr, later, nullptr);
    started = true;
}
"""
LATER = THREAD.replace("BODY", "usleep(1000); *(volatile int*)nullptr = 1;")
RUNS_ON = THREAD.replace("BODY", "for (;;) *(volatile float*)out = 12345.0f;")
IGNORES = """
static void fault() {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, nullptr);
    for (;;) pause();
}
"""
# What it does, the pattern of the reason, and the layer of the sandbox without which it must not be tried here.
FAULTS = {
    "a full scratch": (FULL, r"crashed: SIGABRT in a check \(it printed: scratch: No space left on device\)", "mount"),
    "gigabytes of output": (OUTPUT, "printed more than 1 MiB in a check", None),
    "a child of a child": (CHILD, r"crashed: SIGABRT .*\(it printed: child: ", "seccomp"),
    "a fork bomb": (BOMB, "exceeded its time limit in a check", "seccomp"),
    "a fault after it returned": (LATER, "crashed: SIGSEGV in ", None),
    "a thread that writes on after it returned": (RUNS_ON, r"C\[0,0\] is 12345, expected", None),
    "a hang that no signal ends": (IGNORES, "exceeded its time limit in a check", None),
}


@dataclass(frozen=True, slots=True)
class Lab:
    harness: Harness
    folder: Path
    honest: Path


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("faults")
    settings = MeasureSettings(warmup_ms=2.0, min_time_s=0.01, max_time_s=5.0)
    limits = Limits(call_s=1.0, memory_bytes=512 << 20)
    with Harness(gemm_problem(folder, 64), settings, limits, folder / "cache") as harness:
        harness.check_task(compile_kernel(GEMM_NAIVE, folder, "baseline"))
        yield Lab(harness, folder, compile_kernel(GEMM_FAST, folder, "honest"))


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_fails_its_candidate_alone_and_leaves_nothing(lab: Lab, what: str) -> None:
    fault, reason, layer = FAULTS[what]
    if layer is not None and not lab.harness.layers()[layer]:
        pytest.skip(f"this machine does not grant the layer {layer}")
    multiply = GEMM_FAST.replace(GEMM_HEAD, GEMM_HEAD.replace('extern "C"', "static").replace("solve", "multiply"))
    source = f"{BEFORE}{fault}{multiply}{GEMM_HEAD} {{ out = C; multiply(A, B, C, M, N, K); fault(); }}"
    candidate = compile_kernel(source, lab.folder, what.replace(" ", "_"))
    before = sorted(lab.folder.rglob("*"))
    found = lab.harness.evaluate(candidate)
    assert found.verdict == "fail", found
    assert re.search(reason, found.reason or ""), found.reason
    assert still_running(lab.folder) == []
    assert files_named(MARK) == []
    assert sorted(lab.folder.rglob("*")) == before
    following = lab.harness.evaluate(lab.honest)
    assert (following.verdict, following.reason) == ("pass", None)
