"""Profiling with Nsight Compute, shown with a stand-in on PATH that prints what the real one prints: which faults are
told apart, what a version refuses, what is left when there is no profile. The pages are real ones."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends import walls as build_walls
from backends.host_compiler import search_path
from profiling.findings import Ceilings, Profile, Work
from profiling.ncu import walls
from profiling.ncu.command import METRICS, SECTIONS, USUAL_PLACES, Level, Settings, find_ncu, request
from profiling.ncu.faults import NcuFault, diagnose, rejected_names
from profiling.ncu.pages import parse_pages
from profiling.ncu.runner import can_read_counters, collect, degraded_profile, read_report

DATA = Path(__file__).parents[2] / "data" / "ncu"
CEILINGS = Ceilings(4.28e12, 4.47e12, None, {"float32": 5.1e13}, {"float32": 6.7e13}, 4.8e12, {})
WORK = Work(2 * 2048**3, 3 * 4 * 2048**2)
PERMISSION = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0. For instructions on enabling permissions and to get more information see "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)
DCGM = (
    "==ERROR== An error was reported by the driver:\n==ERROR== Profiling failed because a driver resource was "
    "unavailable. Ensure that no other tool (like DCGM) is concurrently collecting profiling data. See "
    "https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#faq for more details."
)
NO_KERNELS = "==WARNING== No kernels were profiled.\nAvailable Kernels:\n1. gn_stats(const __half *, float *, int, int)"

# Runs the program as ncu does; `before` and `after` say how this one differs.
STAND_IN = """\
#!{python}
import json, os, subprocess, sys, time
DATA, STEM, VERSION = {data!r}, {stem!r}, {version!r}
args = sys.argv[1:]
if args == ["--version"]:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion " + VERSION + " (build 1) (public-release)")
    raise SystemExit(0)
def value(name):
    return args[args.index(name) + 1]
if args[0] == "--import":
    open(args[1]).close()
    sys.stdout.write(open(DATA + "/" + STEM + "_full_" + value("--page") + ".csv").read())
    raise SystemExit(0)
with open({seen!r}, "a") as seen:
    json.dump({{"args": args, "env": dict(os.environ), "cwd": os.getcwd()}}, seen)
    seen.write("\\n")
{before}
program = args[args.index("--log-file") + 2:]
print("==PROF== Connected to process 7")
code = subprocess.run(program).returncode
open(value("--export"), "w").close()
{after}
raise SystemExit(code)
"""


class StandIn:
    """An ncu on PATH, and what it was asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder / "bin"
        self._seen = folder / "seen.jsonl"
        self._folder.mkdir()
        monkeypatch.setenv("PATH", str(self._folder), prepend=os.pathsep)

    def install(
        self, *, before: str = "", after: str = "", stem: str = "gemm_naive", version: str = "2025.3.1.0"
    ) -> None:
        script = STAND_IN.format(
            python=sys.executable,
            data=str(DATA),
            stem=stem,
            version=version,
            seen=str(self._seen),
            before=textwrap.dedent(before),
            after=textwrap.dedent(after),
        )
        path = self._folder / "ncu"
        path.write_text(script)
        path.chmod(0o755)

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line)["args"] for line in self._seen.read_text().splitlines()]

    @property
    def environment(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._seen.read_text().splitlines()[-1])["env"]
        return found


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn(tmp_path, monkeypatch)
    stand_in.install()
    return stand_in


def profile(
    folder: Path, *, level: str = "targeted", timeout_s: float = 60.0, program: str = "print('C[0]=0.0')"
) -> Profile:
    work = folder / "work"
    work.mkdir(exist_ok=True)
    asked: Level = "full" if level == "full" else "targeted"
    found = collect([sys.executable, "-c", program], folder=work, level=asked, timeout_s=timeout_s)
    return found.profile(time_ms=3.14, work=WORK, ceilings=CEILINGS, dtype="float32")


def test_a_profile_holds_kernels_metrics_and_rules(ncu: StandIn, tmp_path: Path) -> None:
    found = profile(tmp_path)
    (kernel,) = found.kernels
    assert kernel.name.startswith("gemm_kernel(")
    assert kernel.time_ms == pytest.approx(3.135488)
    assert found.value("l1tex__throughput.avg.pct_of_peak_sustained_elapsed") == pytest.approx(98.57, abs=0.01)
    assert found.rules[0].speedup_percent == pytest.approx(43.13)
    assert (found.source, found.level) == ("ncu", "targeted")
    assert "ncu 2025.3.1" in found.note
    assert (tmp_path / "work" / "profile.ncu-rep").is_file()
    assert not any(name.startswith("device__") for name in kernel.metrics), "constants of the chip fill the run's log"


def test_all_kernels_of_a_call_are_kept(ncu: StandIn, tmp_path: Path) -> None:
    """A call of two kernels: the longest alone would hide 43% of the time."""
    ncu.install(stem="softmax_two")
    found = profile(tmp_path, level="full")
    assert [kernel.name.split("(")[0] for kernel in found.kernels] == ["row_stats", "row_apply"]
    assert [kernel.share for kernel in found.kernels] == pytest.approx([0.572, 0.428], abs=1e-3)
    assert found.level == "full"


def test_only_the_range_is_profiled_and_clocks_are_left_alone(ncu: StandIn, tmp_path: Path) -> None:
    """Else set-up kernels are profiled, and a locked clock makes the profile another machine's."""
    profile(tmp_path)
    profile(tmp_path, level="full")
    targeted, full = ncu.calls
    for call in (targeted, full):
        assert call[call.index("--profile-from-start") + 1] == "off"
        assert call[call.index("--target-processes") + 1] == "all"
        assert call[call.index("--clock-control") + 1] == "none"
    assert [targeted[i + 1] for i, word in enumerate(targeted) if word == "--section"] == list(SECTIONS)
    assert targeted[targeted.index("--metrics") + 1].split(",") == list(METRICS)
    assert full[full.index("--set") + 1] == "full"
    assert "--metrics" not in full


def test_clock_and_caches_can_be_set(ncu: StandIn, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    settings = Settings(clock_control="base", cache_control="none")
    collected = collect(["true"], folder=tmp_path / "work", level="targeted", timeout_s=60, settings=settings)
    found = collected.profile(time_ms=1, work=WORK, ceilings=CEILINGS, dtype="float32")
    (call,) = ncu.calls
    assert call[call.index("--clock-control") + 1] == "base"
    assert call[call.index("--cache-control") + 1] == "none"
    assert "clock control base, caches hot" in found.note


def test_home_and_tmpdir_are_its_own(ncu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock file that another user left in /tmp, or an unreadable home, would end every profile on the machine."""
    monkeypatch.setenv("HOME", "/nonexistent")
    profile(tmp_path)
    own = str(tmp_path / "work" / "tmp")
    assert ncu.environment["HOME"] == own
    assert ncu.environment["TMPDIR"] == own
    # The stand-in made a profile, so the folder was there; ncu's megabytes of section files do not stay behind.
    assert not Path(own).exists()


@pytest.mark.parametrize("code", [0, 1, 255])
def test_missing_permission_is_named_with_its_three_remedies(ncu: StandIn, tmp_path: Path, code: int) -> None:
    """The program goes on and prints its own results; ncu's exit code says nothing."""
    ncu.install(
        before=f"print({PERMISSION!r}); subprocess.run(args[args.index('--log-file') + 2:]); raise SystemExit({code})"
    )
    with pytest.raises(NcuFault) as caught:
        profile(tmp_path)
    fault = caught.value
    assert fault.kind == "permission"
    for remedy in ("CAP_SYS_ADMIN", "NVreg_RestrictProfilingToAdminUsers=0", "--cap-add"):
        assert remedy in fault.remedy
    assert "sudo" not in fault.remedy
    assert "\n" not in str(fault)


@pytest.mark.parametrize(
    ("output", "kind", "remedy"),
    [
        (DCGM, "driver-resource", "dcgmi profile --pause"),
        ("==ERROR== Failed to open lock file /tmp/nsight-compute-lock.", "lock-file", "TMPDIR"),
        ("==ERROR== InterprocessLockFailed", "lock-file", "TMPDIR"),
        ("Failed to parse options: filesystem error: Permission denied [/root/.config/NVIDIA/config.ncu-cfg]",
         "home", "HOME"),
        ("==ERROR== LibraryNotLoaded", "library", "driver"),
        ("==ERROR== Cuda driver is not compatible with Nsight Compute.", "driver", "nvidia-smi"),
        ("==ERROR== Unknown Error on device 0.", "driver", "profiler"),
        ("==ERROR== The application returned an error code (11).", "application", "without ncu"),
        ("==ERROR== Target application terminated before first instrumented API call.", "application", "without ncu"),
        (NO_KERNELS, "no-kernels", "gn_stats(const __half *, float *, int, int)"),
        ("==ERROR== Something new went wrong.", "output", "output"),
    ],
)  # fmt: skip
def test_faults_are_told_apart(ncu: StandIn, tmp_path: Path, output: str, kind: str, remedy: str) -> None:
    ncu.install(before=f"print({output!r}); raise SystemExit(0)")
    with pytest.raises(NcuFault) as caught:
        profile(tmp_path)
    assert caught.value.kind == kind
    assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_report_without_kernels_is_no_profile(ncu: StandIn, tmp_path: Path) -> None:
    """ncu may write a report of many megabytes, return 0, and have profiled nothing."""
    empty = tmp_path / "empty"
    empty.mkdir()
    for page in ("raw", "details"):
        (empty / f"none_full_{page}.csv").write_text("==WARNING== No kernels were profiled.\n")
    ncu.install(after=f"print({NO_KERNELS!r})", stem=os.path.relpath(empty / "none", DATA))
    with pytest.raises(NcuFault) as caught:
        profile(tmp_path)
    assert caught.value.kind == "no-kernels"
    assert caught.value.available == ("gn_stats(const __half *, float *, int, int)",)


def test_what_a_program_prints_is_not_taken_for_a_fault(ncu: StandIn, tmp_path: Path) -> None:
    """A candidate that prints ncu's own words cannot turn its profile off."""
    ncu.install(after='open(value("--log-file"), "w").write("==PROF== Disconnected from process 7\\n")')
    assert profile(tmp_path, program=f"print({PERMISSION!r})").source == "ncu"


@pytest.mark.parametrize(
    ("version", "refused"),
    [
        ("2022.4.1.0", "derived__memory_l2_theoretical_sectors_global_excessive"),
        ("2024.3.2.0", "dram__bytes_read.sum"),
        ("2025.2.0.0", "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio"),
        ("2026.1.0.0", "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active"),
    ],
)
def test_a_version_that_refuses_a_metric_is_asked_again_without_it(
    ncu: StandIn, tmp_path: Path, version: str, refused: str
) -> None:
    """One unknown name ends the whole run of ncu; names change with its version."""
    before = f"""
        if {refused!r} in value("--metrics").split(","):
            print("==ERROR== Failed to find metric regex:^{re.escape(refused)}$")
            raise SystemExit(1)
    """
    ncu.install(before=before, version=version)
    found = profile(tmp_path)
    asked = [call[call.index("--metrics") + 1].split(",") for call in ncu.calls]
    assert found.source == "ncu"
    assert f"ncu {version}" in found.note
    if refused in METRICS:
        assert len(asked) == 2
        assert set(asked[0]) - set(asked[1]) == {refused}
        assert f"not collected: {refused}" in found.note
    else:
        assert len(asked) == 1


def test_what_was_refused_need_not_be_asked_for_again(ncu: StandIn, tmp_path: Path) -> None:
    """A refusal costs a start of ncu and of the program, in every iteration."""
    ncu.install(before="""
        if "dram__bytes_read.sum" in value("--metrics").split(","):
            print("==ERROR== Failed to find metric dram__bytes_read.sum")
            raise SystemExit(1)
    """)  # fmt: skip
    first = collect(["true"], folder=tmp_path, level="targeted", timeout_s=60)
    assert first.refused == ("dram__bytes_read.sum",)
    again = collect(["true"], folder=tmp_path, level="targeted", timeout_s=60, refused=first.refused)
    assert again.refused == first.refused, "it still says what is missing"
    assert len(ncu.calls) == 3


def test_sections_can_be_refused_too(ncu: StandIn, tmp_path: Path) -> None:
    before = """
        if "WarpStateStats" in args:
            print("==ERROR== Failed to find section WarpStateStats")
            raise SystemExit(1)
    """
    ncu.install(before=before)
    assert "not collected: WarpStateStats" in profile(tmp_path).note


def test_a_version_that_refuses_everything_ends(ncu: StandIn, tmp_path: Path) -> None:
    before = """
        print("==ERROR== Failed to find metric regex:^never_asked_for__x$")
        raise SystemExit(1)
    """
    ncu.install(before=before)
    with pytest.raises(NcuFault) as caught:
        profile(tmp_path)
    assert caught.value.kind == "metrics"
    assert len(ncu.calls) == 1


def test_a_hanging_run_ends_at_its_limit(ncu: StandIn, tmp_path: Path) -> None:
    """ncu multiplies a kernel's time by the number of passes; an endless loop must not hold the night."""
    with pytest.raises(NcuFault, match="took longer than its limit") as caught:
        profile(tmp_path, timeout_s=1.0, program="import time; time.sleep(600)")
    assert caught.value.kind == "timeout"


def test_a_report_that_the_program_replaced_is_not_read(ncu: StandIn, tmp_path: Path) -> None:
    ncu.install(after='os.unlink(value("--export")); os.mkfifo(value("--export"))')
    with pytest.raises(NcuFault, match="that is no file"):
        profile(tmp_path)


def test_without_ncu_there_is_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    usual = [found for place in USUAL_PLACES for found in Path("/").glob(place[1:])]
    if usual or shutil.which("ncu", path=search_path()):
        pytest.skip("this machine has ncu where CUDA puts it")
    with pytest.raises(NcuFault, match="CUDA toolkit") as caught:
        find_ncu()
    assert caught.value.kind == "missing"


@pytest.mark.usefixtures("without_walls")
def test_counters_are_really_read(ncu: StandIn, tmp_path: Path) -> None:
    """`can_read_counters` of a machine is what came back, not what a file in /proc says."""
    access = can_read_counters(["true"], tmp_path)
    assert access.readable
    assert access.version == "2025.3.1.0"
    ncu.install(before=f"print({PERMISSION!r}); raise SystemExit(0)")
    access = can_read_counters(["true"], tmp_path)
    assert not access.readable
    assert "ERR_NVGPUCTRPERM" in access.reason
    assert "--cap-add" in access.remedy


READS = """
import pathlib, socket, subprocess, sys
def attempt(what):
    try:
        return what() or "did"
    except OSError:
        return "kept"
listening = socket.create_server(("127.0.0.1", 0))
found = [
    attempt(pathlib.Path(sys.argv[1]).read_text),
    attempt(lambda: pathlib.Path(sys.argv[1]).write_text("forged") and None),
    attempt(lambda: socket.create_connection(("127.0.0.1", int(sys.argv[2])), 1).close()),
    attempt(lambda: socket.create_connection(listening.getsockname(), 1).close()),
]
pathlib.Path("found").write_text(" ".join(found))
"""


@pytest.fixture
def without_walls() -> Iterator[None]:
    """The trial decides for the process: afterwards none has succeeded."""
    yield
    walls.first_walled(lambda: False, bool)


@pytest.mark.usefixtures("without_walls")
def test_where_counters_were_read_behind_walls_programs_stay_behind_them(
    ncu: StandIn, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The stand-in writes where ncu may. What real counters need shows on a GPU alone."""
    if not build_walls.layers()["build_files"]:
        pytest.skip("no Landlock here")
    secret = tmp_path_factory.mktemp("outside") / "secret"
    secret.write_text("4711")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        program = [sys.executable, "-c", READS, f"../{secret.parent.name}/{secret.name}", port]
        collect(program, folder=tmp_path, level="targeted", timeout_s=60.0)
        assert (tmp_path / "found").read_text() == "4711 did did did"
        assert can_read_counters(["true"], tmp_path).readable
        collected = collect(program, folder=tmp_path, level="targeted", timeout_s=60.0)
    assert collected.note.endswith("behind walls")
    alone = "did" if os.geteuid() != 0 else "kept"  # a network of its own takes root
    assert (tmp_path / "found").read_text() == f"kept kept {alone} did"


@pytest.mark.usefixtures("without_walls")
def test_an_ncu_that_fails_behind_walls_goes_without(ncu: StandIn, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    assert can_read_counters(["true"], tmp_path / "work").readable  # the stand-in writes beside it
    assert len(ncu.calls) == 1
    assert walls.around(["true"], tmp_path, None) is None


def test_a_degraded_profile_says_why_and_has_the_counted_work() -> None:
    found = degraded_profile(WORK, CEILINGS, 3.14, "float32", "ncu may not read counters")
    assert (found.source, found.level) == ("counted", "degraded")
    assert "ncu may not read counters" in found.note
    assert found.value("roofline_fraction") == pytest.approx(0.107, abs=1e-3)


def test_a_report_file_is_read_through_ncu(ncu: StandIn, tmp_path: Path) -> None:
    (tmp_path / "x.ncu-rep").touch()
    pages = read_report(tmp_path / "x.ncu-rep")
    assert len(pages.launches) == 1
    assert pages.rules


def test_the_targeted_request_has_no_doubles() -> None:
    wanted = request("targeted")
    assert len(set(wanted.metrics)) == len(wanted.metrics)
    assert wanted.without(["LaunchStats", METRICS[0]]).sections == SECTIONS[1:]


def test_refused_names_are_read_out_of_their_patterns() -> None:
    text = r"""
==ERROR== Failed to find metric regex:^sm__cycles_active(\.|$)
==ERROR== Failed to find metric a__b.sum
==ERROR== Failed to find metrics c__d.avg.per_second, e__f.ratio
"""
    assert rejected_names(text) == ("sm__cycles_active", "a__b.sum", "c__d.avg.per_second", "e__f.ratio")
    assert rejected_names("nothing") == ()
    assert request("targeted").beyond(request("targeted").without(rejected_names(text))) == ("sm__cycles_active.avg",)


def test_a_log_that_tells_of_a_fault_is_not_called_a_bad_file() -> None:
    with pytest.raises(NcuFault, match="ERR_NVGPUCTRPERM"):
        parse_pages(f"==PROF== Connected to process 7\n{PERMISSION}\nresult: 3\n")
    assert diagnose("result: 3\n==PROF== Disconnected") is None
