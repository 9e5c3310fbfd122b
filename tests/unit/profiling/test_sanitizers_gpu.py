"""compute-sanitizer: what its log means, and that a run without an answer is never taken for a clean one.

A stand-in on PATH takes the real one's options, runs the program and leaves a log of `tests/data/sanitizers`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.process import Completed
from profiling.sanitizers import gpu
from profiling.sanitizers.findings import GPU_TOOLS, Finding, Outcome, Tool, Unavailable, report

DATA = Path(__file__).parents[2] / "data" / "sanitizers"
MEANT: dict[str, Tool] = {
    "past_the_end": "memcheck",
    "race": "racecheck",
    "unwritten": "initcheck",
    "divergent": "synccheck",
}
STAND_IN = """\
#!{python}
import subprocess, sys, time
args = sys.argv[1:]
{before}
log, tool = args[args.index("--log-file") + 1], args[args.index("--tool") + 1]
code = subprocess.run(args[args.index("PROGRAM") + 1:]).returncode
text = open({log!r}).read()
open(log, "w").write(text)
sys.exit(int(args[args.index("--error-exitcode") + 1]) if code == 0 and "SUMMARY: 0" not in text else code)
"""


def judged(log: str, tool: Tool = "memcheck", *, code: int = 0, out: str = "", error: str = "") -> Outcome:
    return gpu.judge(Completed(code, out, error, 0.1, timed_out=False), log, tool, "kernel.cu", ["x", "y"], 30.0)


def printed(kernel: str, tool: Tool) -> Path:
    """What the program printed under the tool, so that addresses of a recording fit its log."""
    return DATA / f"{kernel}.{tool}.out"


def recorded(kernel: str, tool: Tool) -> Outcome:
    done = Completed(0, printed(kernel, tool).read_text(), "", 0.1, timed_out=False)
    return gpu.judge(done, (DATA / f"{kernel}.{tool}.log").read_text(), tool, f"{kernel}.cu", ["x", "y"], 30.0)


@pytest.mark.parametrize("kernel", MEANT)
def test_the_tool_that_is_meant_for_a_fault_names_its_line(kernel: str) -> None:
    found = recorded(kernel, MEANT[kernel])
    assert not isinstance(found, Unavailable), found.reason
    lines = (DATA / f"{kernel}.cu").read_text().splitlines()
    place = f"{kernel}.cu:{1 + next(i for i, line in enumerate(lines) if 'FAULT' in line)}"
    (only,) = report([(MEANT[kernel], found)]).findings
    assert place in f"{only.message} {only.where}", only
    assert "0x" not in str(only), "an address says nothing to anyone else"


@pytest.mark.parametrize("tool", GPU_TOOLS)
def test_a_clean_kernel_is_clean(tool: Tool) -> None:
    assert recorded("clean", tool) == ()


def test_a_bad_access_is_told_by_the_name_of_the_argument_that_it_left() -> None:
    found = recorded("past_the_end", "memcheck")
    assert not isinstance(found, Unavailable)
    assert found[0].message.startswith("Invalid __global__ read of size 4 bytes, 1 bytes after x")
    assert "512" not in found[0].message, "the size of a buffer would tell a shape that is tested"


def test_older_versions_put_file_and_line_before_the_function() -> None:
    """As in a public capture of 2021's: the offset first, then path, line and function."""
    log = (
        "========= COMPUTE-SANITIZER\n"
        "========= ERROR: Race reported between Read access at 0x6360 in /n/k.cu:123:conv(pixel const*, int)\n"
        "=========     and Write access at 0x1fe0 in /home/n/k.cu:63:convolution(pixel const*, int) [1088 hazards]\n"
        "=========     and Write access at 0x26d0 in /home/n/k.cu:68:convolution(pixel const*, int) [64 hazards]\n"
        "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
        "========= Invalid __global__ read of size 4 bytes\n"
        "=========     at 0x100 in /home/n/k.cu:30:sum(const int *, int *)\n"
        "=========     by thread (98,0,0) in block (194,0,0)\n"
        "========= ERROR SUMMARY: 1 error\n"
    )
    race, read = gpu.parse_log(log, "racecheck", "k.cu", {})
    assert (race.message, race.count) == (
        "race: Read access at k.cu:123 and Write access at k.cu:63 and Write access at k.cu:68",
        1152,
    )
    assert (read.message, read.where) == (
        "Invalid __global__ read of size 4 bytes, in sum(const int *, int *)",
        "k.cu:30",
    )


def test_the_place_is_the_kernels_own_where_a_header_of_cuda_is_the_innermost() -> None:
    log = (
        "========= Barrier error detected. Invalid arguments\n"
        "=========     at __syncwarp(unsigned int)+0xe0 in sm_30_intrinsics.hpp:110\n"
        "=========     by thread (16,0,0) in block (0,0,0)\n"
        "=========         Device Frame: broken(float *)+0xb0 in kernel.cu:12\n"
        "========= ERROR SUMMARY: 17 errors\n"
    )
    (found,) = gpu.parse_log(log, "synccheck", "kernel.cu", {})
    assert found.where == "kernel.cu:12"


def test_what_an_error_did_to_the_program_is_no_second_finding() -> None:
    log = (
        (DATA / "past_the_end.memcheck.log")
        .read_text()
        .replace(
            "========= Target",
            '========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure"\n'
            "=========     Saved host backtrace up to driver entry point at error\n========= Target",
        )
    )
    found = judged(log, code=71)
    assert not isinstance(found, Unavailable)
    assert len(found) == 1


def test_an_error_in_words_that_are_new_is_still_an_error() -> None:
    found = judged("========= COMPUTE-SANITIZER\n========= Something new\n========= ERROR SUMMARY: 3 errors\n", code=99)
    assert not isinstance(found, Unavailable)
    assert found[0].count == 3


def test_a_log_that_the_kernel_took_away_is_no_clean_one() -> None:
    found = judged("", code=99)
    assert not isinstance(found, Unavailable)
    assert found != ()


CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
BLIND = (
    "========= Internal Sanitizer Error: The Sanitizer encountered an error while launching k and didn't track it. "
    "Errors might go undetected. (Unable to allocate enough memory)\n"
)


@pytest.mark.parametrize(
    ("log", "code", "error", "reason"),
    [
        ("", 0, "", "exit code 0"),
        ("========= COMPUTE-SANITIZER\n", 1, "", "exit code 1"),
        (CLEAN, 71, "CUDA error 2, out of memory", "out of memory"),
        (BLIND + CLEAN, 0, "", "didn't track it"),
        (
            "========= Error: No attachable process found. compute-sanitizer timed-out.\n",
            1,
            "",
            "No attachable process",
        ),
    ],
)
def test_a_run_that_did_not_end_well_gives_no_answer(log: str, code: int, error: str, reason: str) -> None:
    found = judged(log, code=code, error=error)
    assert isinstance(found, Unavailable)
    assert reason in found.reason


Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    def put(log: str, before: str = "") -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        script = folder / "compute-sanitizer"
        script.write_text(STAND_IN.format(python=sys.executable, log=str(DATA / log), before=before))
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    return put


def ran(folder: Path, tool: Tool, kernel: str, timeout_s: float = 20.0) -> Outcome:
    say = f"print(open({str(printed(kernel, tool))!r}).read())"
    command = ["PROGRAM", sys.executable, "-c", say]
    return gpu.run(
        tool, command, f"{kernel}.cu", ["x", "y"], folder=folder, environment={"KEY": "value"}, timeout_s=timeout_s
    )


def test_a_run_brings_its_findings_home(install: Install, tmp_path: Path) -> None:
    install("past_the_end.memcheck.log")
    assert ran(tmp_path, "memcheck", "past_the_end") == recorded("past_the_end", "memcheck")


def test_each_run_has_ports_of_its_own_and_room_is_left_behind_allocations(tmp_path: Path) -> None:
    """Two runs must not take each other's program for theirs, and the byte past a buffer must be nobody's."""
    lines = [gpu.sanitizer_command(Path("cs"), "memcheck", tmp_path / "log", number) for number in (0, 1)]
    assert lines[0][lines[0].index("--port") + 1] != lines[1][lines[1].index("--port") + 1]
    assert lines[0][lines[0].index("--padding") + 1] == "512"


def test_a_run_past_its_time_gives_no_answer(install: Install, tmp_path: Path) -> None:
    install("race.racecheck.log", before="time.sleep(60)")
    found = ran(tmp_path, "racecheck", "race", timeout_s=1.0)
    assert isinstance(found, Unavailable)
    assert "longer than 1 s" in found.reason


def test_without_the_tool_nothing_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    if gpu.find_sanitizer() is not None:
        pytest.skip("compute-sanitizer lies in a usual place here")
    found = ran(tmp_path, "memcheck", "clean")
    assert isinstance(found, Unavailable)
    assert "not installed" in found.reason


def test_tools_over_several_shapes_come_together_in_one_report() -> None:
    bad = Finding("racecheck", "race", "race", "k.cu:3", 2)
    worse = Finding("racecheck", "race", "race, said otherwise", "k.cu:3", 5)
    told = report(
        [
            ("memcheck", ()),
            ("memcheck", ()),
            ("initcheck", ()),
            ("initcheck", Unavailable("initcheck", "too slow")),
            ("racecheck", (bad,)),
            ("racecheck", (worse,)),
            ("synccheck", Unavailable("synccheck", "gone")),
        ]
    )
    assert told.clean == ("memcheck",)
    assert [(str(f), f.count) for f in told.findings] == [("racecheck: race at k.cu:3 (7 times)", 7)]
    assert [u.tool for u in told.unavailable] == ["initcheck", "synccheck"]
