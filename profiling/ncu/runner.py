"""Profiles one call of a GPU kernel with Nsight Compute, and says by name why there is no profile where there is none.

The program must call `solve` once on staged inputs between cudaProfilerStart and cudaProfilerStop. Kernels are replayed
pass by pass; all that were launched in the range are kept.
"""

from __future__ import annotations

import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Literal

from backends.host_compiler import search_path
from backends.process import Completed, run_process
from backends.walls import Walls
from profiling.cpu_metrics import work_metrics
from profiling.findings import Ceilings, Profile, ProfiledKernel, Work
from profiling.gpu_metrics import gpu_metrics
from profiling.harness.walled import under_tool
from profiling.ncu import walls
from profiling.ncu.command import (
    Level,
    NcuTool,
    Request,
    Settings,
    find_ncu,
    import_command,
    profile_command,
    request,
)
from profiling.ncu.faults import NcuFault, diagnose, rejected_names
from profiling.ncu.pages import Pages, inaccessible, merge, parse_pages
from profiling.ncu.summary import kernels_of, overall

REPORT = "profile.ncu-rep"
_LOG = "ncu.log"
_MOST_OUTPUT = 64 << 20
_IMPORT_TIMEOUT_S = 120.0
# A version may refuse one name at a time. More refusals than this are no difference between versions.
_MOST_REFUSALS = 12
# ncu copies megabytes of section files into HOME, which is new each time, unless it is told to read its own.
_OWN_SECTIONS = {"NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT": "1"}
_PROBE = Request(metrics=("smsp__inst_executed.sum",))
# Constants of the device and of the tool, and the spread over units: no evidence about a kernel.
_LEFT_OUT = (
    "device__",
    "profiler__",
    "numa__",
    "nvl",
    "c2clink__",
    "pcie__",
    "context__",
    "pmsampling:",
    "sm__ops_path_",
    "derived_temp",
)
_SPREAD = (".min", ".max", ".peak_sustained", ".sum.per_", ".TriageCompute.")


@dataclass(frozen=True, slots=True)
class CounterAccess:
    """Whether the GPU's counters were really read. `reason` and `remedy` are empty where they were."""

    readable: bool
    reason: str = ""
    remedy: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Collected:
    """What one run of ncu brought home.

    Attributes:
        pages: kernels and rules.
        level: what was asked for.
        note: version and how the GPU was treated.
        refused: names that this version did not know; the next run need not ask for them.
    """

    pages: Pages
    level: Level
    note: str
    refused: tuple[str, ...]

    def profile(self, *, time_ms: float, work: Work, ceilings: Ceilings, dtype: str) -> Profile:
        """The profile that it makes.

        Args:
            time_ms: the call's time, measured elsewhere (never under a profiler).
            work: what one call must do.
            ceilings: measured on this GPU.
            dtype: the arithmetic that the work's operations are counted at.
        """
        missing = (*self.refused, *inaccessible(self.pages.warnings))
        return make_profile(
            self.pages,
            self.level,
            time_ms=time_ms,
            work=work,
            ceilings=ceilings,
            dtype=dtype,
            note=self.note,
            missing=missing,
        )


def collect(
    argv: Sequence[str],
    *,
    folder: Path,
    level: Level,
    timeout_s: float,
    settings: Settings | None = None,
    environment: Mapping[str, str] | None = None,
    refused: Sequence[str] = (),
) -> Collected:
    """Run ncu over a program and read its report.

    Nothing here depends on the kernel's time or work, so it may be started ahead, in a thread, over a program that
    waits to be told its kernel: ncu's start and the program's then cost no time.

    Args:
        argv: the program that makes the call. It runs again for each refusal of this version, usually once.
        folder: empty, writable for the program's user; working folder of the run.
        level: `targeted` for each iteration, `full` for what was accepted.
        timeout_s: wall limit of all runs together.
        settings: clocks and caches; by default clocks are left alone and caches are cold.
        environment: more variables, and HOME and TMPDIR where the run sees folders elsewhere than we do.
        refused: names not to ask for, from an earlier run.

    Raises:
        NcuFault: there is no profile.
    """
    ncu = find_ncu()
    settings = settings or Settings()
    wanted = request(level)
    pages, taken = _collect(ncu, argv, folder, wanted.without(refused), settings, timeout_s, environment)
    caches = "cold" if settings.cache_control == "all" else "hot"
    note = f"ncu {ncu.version}, {level}, clock control {settings.clock_control}, caches {caches}, {walls.note()}"
    return Collected(pages, level, note, wanted.beyond(taken))


def make_profile(
    pages: Pages,
    level: Level,
    *,
    time_ms: float | None,
    work: Work,
    ceilings: Ceilings | None,
    dtype: str,
    note: str,
    missing: Sequence[str] = (),
) -> Profile:
    """The profile that pages make, however they came about."""
    kernels = kernels_of(pages.launches)
    asked = [name for launch in pages.launches for name in launch.missing if _is_evidence(name)]
    absent = tuple(dict.fromkeys((*missing, *asked)))
    clamped = dict.fromkeys(name for launch in pages.launches for name in launch.clamped if _is_evidence(name))
    parts = [note, f"{sum(kernel.launches for kernel in kernels)} launches of {len(kernels)} kernels"]
    parts += [f"not collected: {', '.join(absent)}"] if absent else []
    parts += [f"read as 100%, printed a little above: {', '.join(clamped)}"] if clamped else []
    return Profile(
        source="ncu",
        level=level,
        metrics=gpu_metrics(overall(kernels), time_ms, work, ceilings, dtype),
        note="; ".join(part for part in parts if part),
        kernels=tuple(_evidence(kernel) for kernel in kernels),
        rules=pages.rules,
    )


def degraded_profile(work: Work, ceilings: Ceilings, time_ms: float, dtype: str, reason: str) -> Profile:
    """What counted work alone says, where no counter can be read. `reason` goes to the report and the prompt."""
    return Profile("counted", "degraded", work_metrics(time_ms, work, ceilings, dtype), f"counted work only: {reason}")


def can_read_counters(
    argv: Sequence[str], folder: Path, *, timeout_s: float = 60.0, environment: Mapping[str, str] | None = None
) -> CounterAccess:
    """Really read one counter of the kernel that `argv` launches between cudaProfilerStart and Stop."""
    return walls.first_walled(lambda: _read_one(argv, folder, timeout_s, environment), lambda access: access.readable)


def _read_one(
    argv: Sequence[str], folder: Path, timeout_s: float, environment: Mapping[str, str] | None
) -> CounterAccess:
    version = ""
    try:
        ncu = find_ncu()
        version = ncu.version
        pages, _ = _collect(ncu, argv, folder, _PROBE, Settings(), timeout_s, environment)
    except NcuFault as fault:
        return CounterAccess(False, fault.what, fault.remedy, version)
    if any(launch.metrics.get(name) for launch in pages.launches for name in _PROBE.metrics):
        return CounterAccess(True, version=version)
    return CounterAccess(False, "ncu profiled a kernel and read no counter of it", "see `ncu --query-metrics`", version)


def read_report(report: Path, timeout_s: float = _IMPORT_TIMEOUT_S, ncu: NcuTool | None = None) -> Pages:
    """Kernels and rules of a report file.

    Raises:
        NcuFault: ncu is not installed, or cannot read it.
    """
    tool = ncu or find_ncu()
    with ThreadPoolExecutor(2) as pool:
        raw = pool.submit(_import, tool, report, "raw", timeout_s)
        details = pool.submit(_import, tool, report, "details", timeout_s)
        kernels = raw.result()
        try:
            rules = details.result()
        except NcuFault:  # a report without a section has no details page
            return kernels
    return merge(kernels, rules)


def _collect(
    ncu: NcuTool,
    argv: Sequence[str],
    folder: Path,
    wanted: Request,
    settings: Settings,
    timeout_s: float,
    environment: Mapping[str, str] | None,
) -> tuple[Pages, Request]:
    """Run until this version takes the request, and read the report: the pages, and the request as it was taken."""
    deadline = monotonic() + timeout_s
    for _ in range(_MOST_REFUSALS):
        output = _run(ncu, argv, folder, wanted, settings, deadline - monotonic(), environment)
        less = wanted.without(rejected_names(output))
        if less == wanted:
            break
        wanted = less
    report = folder / REPORT
    try:
        # The program may write here too: a link or a pipe is no report.
        if not stat.S_ISREG(report.lstat().st_mode):
            raise NcuFault("output", f"the run under ncu left a {REPORT} that is no file", "see its output")
    except FileNotFoundError:
        raise diagnose(output) or NcuFault("output", "ncu wrote no report", "see its output") from None
    try:
        return read_report(report, max(1.0, deadline - monotonic()), ncu), wanted
    except NcuFault as fault:
        raise diagnose(output) or fault from fault


def _run(
    ncu: NcuTool,
    argv: Sequence[str],
    folder: Path,
    wanted: Request,
    settings: Settings,
    timeout_s: float,
    environment: Mapping[str, str] | None,
) -> str:
    """ncu's own lines of one run; with a version that keeps no log, all that was printed."""
    private = folder / "tmp"
    private.mkdir(exist_ok=True)
    for name in (REPORT, _LOG):
        (folder / name).unlink(missing_ok=True)
    # Names relative to the working folder, which a walled run sees elsewhere. A HOME and a TMPDIR of its own: ncu reads
    # settings in the one and shares a lock file with every user of the machine in the other.
    command = under_tool(argv, folder, profile_command(ncu, wanted, settings, report=REPORT, log=_LOG))
    env = {"HOME": str(private), "TMPDIR": str(private), **_OWN_SECTIONS, **(environment or {})}
    try:
        done = _process(command, timeout_s, folder, env, walls.around(command, folder, env))
    finally:
        shutil.rmtree(private, ignore_errors=True)
    log = folder / _LOG
    said = log.read_text(encoding="utf-8", errors="replace") if log.is_file() and not log.is_symlink() else ""
    return said if said.strip() else f"{done.stdout}\n{done.stderr}"


def _import(ncu: NcuTool, report: Path, page: Literal["raw", "details"], timeout_s: float) -> Pages:
    with tempfile.TemporaryDirectory(prefix="roofclimb-ncu-") as private:
        own = {"HOME": private, "TMPDIR": private, **_OWN_SECTIONS}
        done = _process(import_command(ncu, report, page), timeout_s, None, own)
    if done.returncode != 0 and not done.stdout.strip():
        said = next(iter(done.stderr.strip().splitlines()), f"exit code {done.returncode}")
        raise diagnose(done.stderr) or NcuFault("output", f"ncu cannot read {report}: {said}", "profile again")
    return parse_pages(done.stdout)


def _process(
    command: Sequence[str],
    timeout_s: float,
    folder: Path | None,
    environment: Mapping[str, str] | None,
    inside: Walls | None = None,
) -> Completed:
    env = {"LC_ALL": "C", "PATH": search_path(), **(environment or {})}
    if timeout_s > 0:
        try:
            done = run_process(
                command, timeout_s=timeout_s, cwd=folder, env=env, max_output_bytes=_MOST_OUTPUT, walls=inside
            )
        except OSError as error:
            raise NcuFault(
                "missing", f"ncu cannot be started: {error.strerror}", "install Nsight Compute anew"
            ) from error
        if not done.timed_out:
            return done
    raise NcuFault("timeout", "the run under ncu took longer than its limit", "raise the limit, or use smaller dims")


def _is_evidence(name: str) -> bool:
    if name == "gpc__cycles_elapsed.max":
        return True
    return not name.startswith(_LEFT_OUT) and not any(part in name for part in _SPREAD)


def _evidence(kernel: ProfiledKernel) -> ProfiledKernel:
    kept = {name: value for name, value in kernel.metrics.items() if _is_evidence(name)}
    return ProfiledKernel(kernel.name, kernel.launches, kernel.time_ms, kernel.share, kernel.grid, kernel.block, kept)
