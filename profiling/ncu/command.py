"""Command lines for Nsight Compute: where it is, what it is asked for, how a report is read back."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from backends.host_compiler import find_tool, search_path
from backends.process import run_process
from profiling.ncu.faults import NcuFault

Level = Literal["targeted", "full"]

USUAL_PLACES = ("/usr/local/cuda/bin/ncu", "/usr/local/cuda-*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
_VERSION = re.compile(r"Version (\d{4}\.\d+(?:\.\d+)*)")

SECTIONS = (
    "LaunchStats",
    "Occupancy",
    "SpeedOfLight",
    "MemoryWorkloadAnalysis",
    "SchedulerStats",
    "WarpStateStats",
)
_PEAK = "avg.pct_of_peak_sustained_elapsed"
_ACTIVE = "avg.pct_of_peak_sustained_active"
# What the loads and the catalogue's triggers need and these sections do not collect. All but the last three are
# hardware counters; those are counted by instrumented code, in a pass of its own.
METRICS = (
    f"l1tex__throughput.{_PEAK}",
    f"lts__throughput.{_PEAK}",
    f"gpu__dram_throughput.{_PEAK}",
    f"sm__pipe_tensor_cycles_active.{_ACTIVE}",
    f"sm__pipe_tensor_cycles_active.{_PEAK}",
    f"sm__pipe_fma_cycles_active.{_PEAK}",
    f"sm__inst_executed_pipe_fma.{_ACTIVE}",
    f"sm__inst_executed_pipe_fma.{_PEAK}",
    f"sm__inst_executed_pipe_alu.{_ACTIVE}",
    f"sm__inst_executed_pipe_alu.{_PEAK}",
    f"sm__inst_executed_pipe_fp64.{_ACTIVE}",
    f"sm__inst_executed_pipe_fp64.{_PEAK}",
    f"sm__inst_executed_pipe_xu.{_ACTIVE}",
    f"sm__inst_executed_pipe_xu.{_PEAK}",
    f"sm__inst_executed_pipe_lsu.{_ACTIVE}",
    "sm__cycles_active.avg",
    "sm__cycles_elapsed.avg",
    "smsp__inst_executed.sum",
    "smsp__inst_executed_op_branch.sum",
    "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "l1tex__m_xbar2l1tex_read_bytes.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__t_output_wavefronts_pipe_lsu_mem_global_op_atom.sum.pct_of_peak_sustained_elapsed",
    "l1tex__t_output_wavefronts_pipe_lsu_mem_global_op_red.sum.pct_of_peak_sustained_elapsed",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",
    "smsp__sass_average_branch_targets_threads_uniform.pct",
)


@dataclass(frozen=True, slots=True)
class NcuTool:
    """An installed Nsight Compute."""

    path: Path
    version: str


@dataclass(frozen=True, slots=True)
class Settings:
    """How ncu treats the GPU while it measures.

    Attributes:
        clock_control: `none` leaves the clocks alone, `base` locks them to the base clock.
        cache_control: `all` flushes the caches before each pass (cold), `none` does not (hot).
    """

    clock_control: Literal["none", "base"] = "none"
    cache_control: Literal["all", "none"] = "all"


@dataclass(frozen=True, slots=True)
class Request:
    """What ncu is asked to collect."""

    sections: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    set: str | None = None

    def options(self) -> list[str]:
        """As command line options."""
        chosen = ["--set", self.set] if self.set else []
        chosen += [part for section in self.sections for part in ("--section", section)]
        return chosen + (["--metrics", ",".join(self.metrics)] if self.metrics else [])

    def without(self, names: Sequence[str]) -> Request:
        """Without what a version does not know; the same where it was not asked for.

        A refused name may lack the suffixes (`.avg.pct_of_peak…`) that it was asked for with.
        """
        return replace(
            self,
            sections=tuple(section for section in self.sections if section not in names),
            metrics=tuple(m for m in self.metrics if not any(m == n or m.startswith(f"{n}.") for n in names)),
        )

    def beyond(self, other: Request) -> tuple[str, ...]:
        """The sections and metrics that `other` does not ask for."""
        mine, others = (*self.sections, *self.metrics), (*other.sections, *other.metrics)
        return tuple(name for name in mine if name not in others)


def request(level: Level) -> Request:
    """Stage 1 asks for what decisions rest on, stage 2 for everything."""
    return Request(set="full") if level == "full" else Request(sections=SECTIONS, metrics=METRICS)


def find_ncu() -> NcuTool:
    """The installed Nsight Compute: on PATH, else where CUDA and Nsight put it.

    Raises:
        NcuFault: there is none, or it does not run.
    """
    path = find_tool("ncu")
    if path is None:
        places = (found for pattern in USUAL_PLACES for found in Path("/").glob(pattern[1:]))
        path = max(places, key=_age, default=None)
    if path is None:
        raise NcuFault(
            "missing", "Nsight Compute (ncu) is not installed", "install it with the CUDA toolkit, or put it on PATH"
        )
    try:
        found = path.stat()
        return NcuTool(path, _version(path, found.st_mtime_ns, found.st_size))
    except LookupError:
        return NcuTool(path, "of unknown version")
    except OSError as error:
        raise NcuFault("missing", f"{path} cannot be run: {error.strerror}", "install Nsight Compute anew") from error


@functools.lru_cache(maxsize=8)
def _version(path: Path, changed_ns: int, size: int) -> str:
    """What this program says of itself; asked once for each of its states, since it takes its time to start.

    Raises:
        LookupError: no version.
    """
    done = run_process([str(path), "--version"], timeout_s=60.0, env={"LC_ALL": "C", "PATH": search_path()})
    match = _VERSION.search(done.stdout)
    if match is None:
        raise LookupError(f"{path} --version names none")
    return match[1]


def profile_command(
    ncu: NcuTool, wanted: Request, settings: Settings, *, report: str | None, log: str | None
) -> list[str]:
    """The part of the command before the program: profile what runs between cudaProfilerStart and Stop, in any process.

    Args:
        report: file to write; None prints the raw page as CSV instead.
        log: file for ncu's own lines, so that the program's prints are not taken for them.
    """
    # A report is not printed as well: ncu prints either.
    target = ["--force-overwrite", "--export", report] if report else ["--csv", "--page", "raw"]
    return [
        str(ncu.path),
        *("--profile-from-start", "off", "--target-processes", "all"),
        *("--clock-control", settings.clock_control, "--cache-control", settings.cache_control),
        *wanted.options(),
        *target,
        *(("--log-file", log) if log else ()),
    ]


def import_command(ncu: NcuTool, report: Path, page: Literal["raw", "details"]) -> list[str]:
    """Read a page of a report as CSV."""
    return [str(ncu.path), "--import", str(report), "--page", page, "--csv"]


def _age(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]
