"""What a kernel's author is told: right or wrong, how fast, and that one kernel's fault is nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from backends.process import run_process
from backends.types import Parameter, Rejected, Signature
from profiling.findings import Comparison
from profiling.harness.harness import Harness
from profiling.harness.walled import under_tool
from profiling.types import Case, Limits, MeasureSettings, Problem, Scalar, Tensor
from tests.kernels import GEMM_FAST, GEMM_HEAD, GEMM_NAIVE, compile_kernel, gemm_problem, pointer

SETTINGS = MeasureSettings(warmup_ms=2.0, min_time_s=0.02, max_time_s=5.0)


@dataclass(frozen=True, slots=True)
class Lab:
    harness: Harness
    folder: Path
    naive: Path
    fast: Path


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("evaluate")
    naive = compile_kernel(GEMM_NAIVE, folder, "naive")
    with Harness(gemm_problem(folder), SETTINGS, Limits(call_s=2.0), folder / "cache") as harness:
        harness.check_task(naive)
        yield Lab(harness, folder, naive, compile_kernel(GEMM_FAST, folder, "fast"))


def test_a_right_kernel_passes_with_its_time_by_two_clocks(lab: Lab) -> None:
    found = lab.harness.evaluate(lab.naive)
    assert (found.verdict, found.reason) == ("pass", None)
    assert {c.distribution for c in found.checks} == {
        "declared",
        "normal",
        "uniform",
        "heavy-tailed",
        "spike",
        "constant rows",
        "denormal",
        "timed",
    }
    assert found.timing is not None
    assert len(found.timing.samples_ms) >= SETTINGS.min_samples
    assert found.timing.outside_ms is not None
    assert found.timing.median_ms > 0.0


def test_a_clock_symbol_of_its_own_changes_nothing(lab: Lab) -> None:
    forged = '#include <time.h>\nextern "C" int clock_gettime(clockid_t, timespec* t) { *t = {}; return 0; }\n'
    found = lab.harness.evaluate(compile_kernel(forged + GEMM_FAST, lab.folder, "own_clock"))
    assert found.verdict == "pass"
    assert found.timing is not None
    assert found.timing.median_ms > 0.0


def test_a_kernel_that_is_no_library_fails_to_load(lab: Lab) -> None:
    broken = lab.folder / "broken.so"
    broken.write_bytes(b"not a library")
    assert "cannot be loaded" in (lab.harness.evaluate(broken).reason or "")
    nameless = compile_kernel('extern "C" void other() {}', lab.folder, "nameless")
    found = lab.harness.evaluate(nameless)
    assert found.verdict == "fail"
    assert "solve" in (found.reason or "")


def test_a_missing_kernel_is_not_the_kernels_fault(lab: Lab) -> None:
    assert lab.harness.evaluate(lab.folder / "nowhere.so").verdict == "error"


def test_a_faster_kernel_is_found_faster_and_a_slower_one_slower(lab: Lab) -> None:
    gain = compared(lab, lab.naive, lab.fast)
    assert gain.low > 1.0
    assert gain.delta_low_ms > 0.0
    work = "for (int k = 0; k < K; k++) s += A[i * K + k] * B[k * N + j];"
    twice = GEMM_NAIVE.replace(work, f"{work} C[i * N + j] = s; s = 0; {work}")
    loss = compared(lab, lab.naive, compile_kernel(twice, lab.folder, "twice"))
    assert loss.high < 1.0


def test_a_kernel_is_not_faster_than_itself(lab: Lab) -> None:
    """Accepting noise is how published speedups come about: the claim needs more than the spread of A/A."""
    spread = lab.harness.aa_spread(lab.fast)
    assert isinstance(spread, float)
    margin = 1.0 + max(0.02, spread)
    gains = [compared(lab, lab.fast, lab.fast).low for _ in range(3)]
    assert [gain for gain in gains if gain > margin] == []


def test_a_kernel_that_fails_against_itself_is_a_value(lab: Lab) -> None:
    """A champion that is wrong now and then must not end the night: its noise alone stays unknown."""
    wrong = compile_kernel(f"{GEMM_HEAD} {{ C[0] = 1; }}", lab.folder, "wrong_twice")
    found = lab.harness.aa_spread(wrong)
    assert isinstance(found, Rejected)
    assert found.stage == "verify"


def test_a_comparison_says_which_of_the_two_is_wrong(lab: Lab) -> None:
    wrong = compile_kernel(f"{GEMM_HEAD} {{ C[0] = 1; }}", lab.folder, "wrong")
    for a, b, who in ((lab.naive, wrong, "b"), (wrong, lab.naive, "a")):
        found = lab.harness.compare(a, b)
        assert isinstance(found, Rejected)
        assert (found.stage, found.reason[:13]) == ("verify", f"{who}: timed call")


def test_many_are_compared_in_one_sitting_and_a_failure_costs_its_own_pairs_alone(lab: Lab) -> None:
    """Ablations sit with their champion: one that crashes or is wrong must not take the others' evidence with it."""
    wrong = compile_kernel(f"{GEMM_HEAD} {{ C[0] = 1; }}", lab.folder, "wrong_beside")
    crash = compile_kernel(f"{GEMM_HEAD} {{ __builtin_trap(); }}", lab.folder, "crash_beside")
    hang = compile_kernel(f"{GEMM_HEAD} {{ for (volatile int i = 0;;) i = i; }}", lab.folder, "hang_beside")
    pairs = [(lab.naive, lab.fast), (wrong, lab.fast), (crash, lab.fast), (hang, lab.fast), (lab.fast, lab.naive)]
    gain, *failed, loss = lab.harness.compare_all(pairs)
    assert isinstance(gain, Comparison), gain
    assert isinstance(loss, Comparison), loss
    assert gain.low > 1.0 > loss.high
    assert [len(group) > 0 for group in gain.log_ratios] == [True] * 3
    reasons = [found.reason for found in failed if isinstance(found, Rejected)]
    assert reasons[0].startswith("a: timed call 1: C[0,0] is 1")
    assert reasons[1].startswith("a: crashed: SIG")
    assert reasons[2].startswith("a: exceeded its time limit")


def test_a_kernel_against_itself_is_two_workers(lab: Lab) -> None:
    """Else its noise would be none, and any gain could be claimed."""
    ratios = compared(lab, lab.fast, lab.fast).log_ratios
    assert any(ratio != 0.0 for group in ratios for ratio in group)


def compared(lab: Lab, a: Path, b: Path) -> Comparison:
    """A comparison that must come to numbers."""
    found = lab.harness.compare(a, b)
    assert isinstance(found, Comparison), found.reason
    return found


def test_one_call_can_be_run_alone_for_a_profiler(lab: Lab) -> None:
    for command in (lab.harness.solo_command(lab.naive), lab.harness.empty_command()):
        assert run_process(command, timeout_s=20.0).returncode == 0


def test_one_call_runs_under_valgrind(lab: Lab) -> None:
    if not os.access("/usr/bin/valgrind", os.X_OK):
        pytest.skip("valgrind is not installed")
    tool = ["/usr/bin/valgrind", "--error-exitcode=9", "--quiet"]
    lab.folder.joinpath("tool").mkdir()
    done = run_process(under_tool(lab.harness.solo_command(lab.fast), lab.folder / "tool", tool), timeout_s=60.0)
    assert done.returncode == 0, done.stderr


def test_time_under_the_floor_is_suspect(lab: Lab, tmp_path: Path) -> None:
    """What no machine can do is not a record but a mistake."""
    floored = MeasureSettings(warmup_ms=1.0, min_time_s=0.005, floor_ms=1000.0)
    with Harness(gemm_problem(tmp_path), floored, Limits(call_s=2.0), lab.folder / "cache") as harness:
        harness.check_task(lab.naive)
        found = harness.evaluate(lab.naive)
    assert found.verdict == "suspect"
    assert "under the floor" in (found.reason or "")


def test_without_a_reference_nothing_passes(lab: Lab, tmp_path: Path) -> None:
    problem = gemm_problem(tmp_path)
    blind = Problem(problem.name, problem.signature, problem.timed, (), None)
    with Harness(blind, SETTINGS, Limits(call_s=2.0), lab.folder / "cache") as harness:
        assert harness.check_task(lab.naive).rejected == ()
        found = harness.evaluate(lab.naive)
    assert found.verdict == "unverified"
    assert found.timing is not None


COUNT_SIGNATURE = Signature(
    (
        pointer("x", "int32", const=True),
        pointer("total", "int64", const=False),
        pointer("seen", "uint8", const=False),
        Parameter("n", "size_t", "uint64", pointer=False, const=False),
        Parameter("half", "double", "float64", pointer=False, const=False),
    ),
    returns="int",
)
COUNT_REFERENCE = """
def reference(x, total, seen, n, half):
    return {"total": total + x.long(), "seen": (x > half).to(seen.dtype)}
"""
COUNT_HEAD = (
    "#include <cstdint>\n#include <cstddef>\n"
    'extern "C" int solve(const int32_t* x, int64_t* total, uint8_t* seen, size_t n, double half)'
)
COUNT = f"{COUNT_HEAD} {{ for (size_t i = 0; i < n; i++) total[i] += x[i], seen[i] = x[i] > half; return 0; }}"


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Harness, Path]]:
    """Integers of several widths, an in-out tensor, and a return code."""
    folder = tmp_path_factory.mktemp("count")
    (folder / "ref.py").write_text(COUNT_REFERENCE)
    arguments = (
        Tensor("x", (301,), "int32", "in"),
        Tensor("total", (301,), "int64", "inout"),
        Tensor("seen", (301,), "uint8", "out"),
        Scalar("n", "uint64", 301),
        Scalar("half", "float64", 0.5),
    )
    problem = Problem("count", COUNT_SIGNATURE, Case({"n": 301}, arguments), (), folder / "ref.py")
    with Harness(problem, SETTINGS, Limits(call_s=2.0), folder / "cache") as harness:
        harness.check_task(compile_kernel(COUNT, folder, "baseline"))
        yield harness, folder


def test_integers_and_in_out_tensors_are_exact_in_every_call(counting: tuple[Harness, Path]) -> None:
    harness, folder = counting
    assert harness.evaluate(folder / "baseline.so").verdict == "pass"
    off = COUNT.replace("return 0", "total[300] += 1; return 0")
    found = harness.evaluate(compile_kernel(off, folder, "off_by_one"))
    assert found.verdict == "fail"
    assert "total[300] is" in (found.reason or "")


def test_a_return_code_is_a_failure(counting: tuple[Harness, Path]) -> None:
    harness, folder = counting
    found = harness.evaluate(compile_kernel(COUNT.replace("return 0", "return 3"), folder, "three"))
    assert found.verdict == "fail"
    assert "solve returned 3" in (found.reason or "")


def test_the_controller_imports_neither_torch_nor_numpy() -> None:
    code = "import sys, profiling.harness.harness; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_runs_and_nothing_is_left_after_close(tmp_path: Path) -> None:
    harness = Harness(gemm_problem(tmp_path), SETTINGS, Limits(call_s=2.0), tmp_path / "cache")
    harness.solo_command(compile_kernel(GEMM_NAIVE, tmp_path, "naive"))
    assert list((tmp_path / "cache").glob("harness-*"))
    harness.close()
    assert not list((tmp_path / "cache").glob("harness-*"))
    assert _running(tmp_path, b"") == []


def test_killing_the_controller_leaves_nothing_running(tmp_path: Path) -> None:
    """Cron kills jobs: a kernel that hangs must not stay on the machine for ever."""
    script = tmp_path / "controller.py"
    script.write_text(
        "from pathlib import Path\n"
        "from tests.kernels import GEMM_HEAD, compile_kernel, gemm_problem\n"
        "from profiling.harness.harness import Harness\n"
        "from profiling.types import Limits, MeasureSettings\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "hangs = compile_kernel(GEMM_HEAD + '{ for (volatile int i = 1; i;) {} }', folder, 'hangs')\n"
        "harness = Harness(gemm_problem(folder), MeasureSettings(), Limits(call_s=600.0), folder / 'cache')\n"
        "print('ready', flush=True)\n"
        "harness.evaluate(hangs)\n"
    )
    root = Path(__file__).parents[3]
    controller = subprocess.Popen(
        [sys.executable, str(script)], cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, stdout=subprocess.PIPE
    )
    assert controller.stdout is not None
    with controller.stdout as output:
        assert output.readline() == b"ready\n"
    _wait_until(lambda: len(_running(tmp_path, b"--serve")) >= 3)
    controller.kill()
    controller.wait()
    _wait_until(lambda: not _running(tmp_path, b"--serve"))


def _wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20.0
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _running(folder: Path, what: bytes) -> list[bytes]:
    lines = [_command_line(p) for p in Path("/proc").iterdir() if p.name.isdigit()]
    return [line for line in lines if str(folder).encode() in line and what in line]


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


PROBE_HEADERS = ("fcntl", "signal", "stdlib", "sys/socket", "sys/syscall", "unistd")
PROBE_HEAD = "".join(f"#include <{name}.h>\n" for name in PROBE_HEADERS)


@pytest.mark.parametrize(
    ("layer", "attempt"),
    [
        ("seccomp", "socket(AF_INET, SOCK_STREAM, 0) >= 0"),
        ("seccomp", "fork() >= 0"),
        ("seccomp", 'system("true") == 0'),
        ("pid", "getppid() != 1"),
        ("user", "geteuid() == 0"),
        ("mount", 'open("/var/tmp/escaped", O_CREAT | O_WRONLY, 0666) >= 0'),
        ("mount", "access(__FILE__, F_OK) == 0"),
        ("seccomp", "kill(getppid(), 0) == 0"),
        ("seccomp", "syscall(SYS_tgkill, getppid(), getppid(), 0) == 0"),
        ("seccomp", "kill(getpid(), 0) != 0"),
    ],
)
def test_a_wall_that_is_reported_stands(lab: Lab, layer: str, attempt: str) -> None:
    """`layers()` goes into the report: it must not name a wall through which a kernel can walk."""
    if not lab.harness.layers()[layer]:
        pytest.skip(f"this machine does not grant the layer {layer}")
    source = PROBE_HEAD + GEMM_FAST.replace("{", f"{{ if ({attempt}) abort();", 1)
    found = lab.harness.evaluate(compile_kernel(source, lab.folder, f"probe_{abs(hash(attempt))}"))
    assert found.verdict == "pass", found.reason
