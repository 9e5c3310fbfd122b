"""Counts events of one call of a CPU kernel: hardware counters, else cachegrind's simulation, else counted work alone.

A kernel cannot be counted by itself: a process has to load it. So two runs are counted, one that calls the kernel and
one that calls an empty `solve`, and the difference is the kernel's.
"""

from __future__ import annotations

import functools
import re
import signal
import stat
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from backends.host_compiler import find_tool, search_path
from backends.process import Completed, run_process
from profiling.cpu_metrics import Counts, count_metrics, mix_metrics, work_metrics
from profiling.device import DeviceFacts, cpu_facts
from profiling.findings import Ceilings, Profile, Work
from profiling.harness.walled import under_tool

# Two groups of four: what a core counts at once, so that nothing is multiplexed and scaled up.
_PERF_GROUPS = (
    ("cycles", "instructions", "branches", "branch-misses"),
    ("L1-dcache-loads", "L1-dcache-load-misses", "LLC-loads", "LLC-load-misses"),
)
_PERF_REPEATS = 3
# How much of the empty run's counts two equal runs may differ by. A simulated run repeats to the instruction; what is
# left is the loading of another library. Counters also see what interrupts and page faults do to the core.
_NOISE = {"perf": 0.01, "cachegrind": 0.0002}
_ENVIRONMENT = {"LC_ALL": "C", "PYTHONHASHSEED": "0"}
_CACHEGRIND = ("--tool=cachegrind", "--cache-sim=yes", "--branch-sim=yes", "--trace-children=yes", "--vgdb=no")
_EVENT = re.compile(r"^(?:cpu_\w+/)?(?P<name>[^/:]+)(?:/\w*)?(?::\w+)?$")


class CountersUnavailableError(Exception):
    """Events could not be counted. The message says why in one line; the profile goes on without them."""


@dataclass(frozen=True, slots=True)
class CounterSource:
    """Where counts come from on this machine.

    Attributes:
        name: the best source that really read something.
        reason: why no better source is used; empty for `perf`, the best.
    """

    name: Literal["perf", "cachegrind", "counted"]
    reason: str


@functools.cache
def counter_source() -> CounterSource:
    """Find the best source by really reading it once. The answer is kept for the life of the process."""
    with tempfile.TemporaryDirectory(prefix="roofclimb-probe-") as folder:
        try:
            _perf_totals(["true"], Path(folder) / "perf", _PERF_GROUPS[0], repeats=1, timeout_s=10)
            return CounterSource("perf", "")
        except CountersUnavailableError as error:
            no_perf = str(error)
        try:
            _cachegrind_totals(["true"], Path(folder), timeout_s=20)
            return CounterSource("cachegrind", no_perf)
        except CountersUnavailableError as error:
            return CounterSource("counted", f"{no_perf}; {error}")


def profile_cpu(
    solo: Sequence[str],
    empty: Sequence[str],
    *,
    time_ms: float,
    work: Work,
    ceilings: Ceilings,
    mix: Mapping[str, int | float | str] | None,
    dtype: str,
    timeout_s: float,
) -> Profile:
    """Profile one kernel.

    Args:
        solo: command that loads the kernel and calls `solve` once on staged inputs. It may be run several times.
        empty: the same with an empty `solve`.
        time_ms: the kernel's time, measured elsewhere (never under a profiler).
        work: what one call must do.
        ceilings: this machine's.
        mix: instruction counts from the disassembly (see `mix_metrics`), None without one.
        dtype: arithmetic of the kernel, `float32` or `float64`.
        timeout_s: wall limit of all runs together; past it only counted work is left, and the note says so.

    Returns:
        A `full` profile where events were counted, else a `degraded` one.
    """
    certain = work_metrics(time_ms, work, ceilings, dtype)
    rest = mix_metrics(mix, dtype)
    source = counter_source()
    try:
        if source.name == "perf":
            counts, note = perf_counts(solo, empty, timeout_s=timeout_s)
        elif source.name == "cachegrind":
            counts, note = cachegrind_counts(solo, empty, timeout_s=timeout_s)
        else:
            raise CountersUnavailableError(source.reason)
    except CountersUnavailableError as error:
        return Profile("counted", "degraded", certain + rest, f"counted work only: {error}")
    counted = count_metrics(counts, time_ms, work, ceilings, dtype)
    missing = [field.name for field in fields(counts) if getattr(counts, field.name) is None]
    if missing:
        note += f"; not counted: {', '.join(missing)}"
    if source.reason:
        note += f"; {source.reason}"
    return Profile(source.name, "full", certain + counted + rest, note)


def perf_counts(solo: Sequence[str], empty: Sequence[str], *, timeout_s: float) -> tuple[Counts, str]:
    """Hardware events of one call in user mode, and a note on what they cover.

    Raises:
        CountersUnavailableError: perf failed, ran too long, or the kernel drowns in its process's start-up.
    """
    deadline = time.monotonic() + timeout_s
    totals: list[dict[str, float | None]] = []
    with tempfile.TemporaryDirectory(prefix="roofclimb-perf-") as folder:
        for argv in (empty, solo):
            found: dict[str, float | None] = {}
            for events in _PERF_GROUPS:
                left = deadline - time.monotonic()
                found |= _perf_totals(argv, Path(folder) / "stat", events, repeats=_PERF_REPEATS, timeout_s=left)
            totals.append(found)
    base, full = (_counts_from_perf(found) for found in totals)
    note = (
        f"perf stat, user mode, mean of {_PERF_REPEATS} runs less as many of an empty solve; cache events are loads "
        "alone, without what the prefetchers brought"
    )
    return _difference(full, base, _NOISE["perf"]), note


def cachegrind_counts(solo: Sequence[str], empty: Sequence[str], *, timeout_s: float) -> tuple[Counts, str]:
    """Simulated events of one call, and a note on what they cover. The two runs share the wall limit side by side.

    Raises:
        CountersUnavailableError: valgrind failed (it knows no AVX-512), ran too long, or the kernel drowns in its
            process's start-up.
    """
    # Not one in the other: a walled run becomes another user, who must still reach its own.
    prefix = "roofclimb-cachegrind-"
    with (
        tempfile.TemporaryDirectory(prefix=prefix) as one,
        tempfile.TemporaryDirectory(prefix=prefix) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        runs = [
            pool.submit(_cachegrind_totals, argv, Path(place), timeout_s=timeout_s)
            for argv, place in ((solo, one), (empty, other))
        ]
        # The empty run first: where that fails, the fault is not the kernel's and its message is the better one.
        (base_totals, caches), (full_totals, _) = runs[1].result(), runs[0].result()
    line = int(caches["D1"].get("line", 64)) if "D1" in caches else 64
    base, full = _counts_from_cachegrind(base_totals, line), _counts_from_cachegrind(full_totals, line)
    sizes = ", ".join(f"{name} {cache['size'] >> 10} KiB" for name, cache in caches.items())
    note = f"cachegrind, simulated on one core with {sizes}, caches as staging left them, less an empty solve"
    return _difference(full, base, _NOISE["cachegrind"]), note


def parse_perf_csv(text: str, separator: str = ";") -> dict[str, float | None]:
    """Parse `perf stat -x SEPARATOR`: event name, modifiers stripped, to its count.

    `<not counted>` and `<not supported>` are None. A decimal comma is read as one, unless it is the separator. Events
    that a hybrid CPU reports by kind of core are added up.
    """
    events: dict[str, float | None] = {}
    for line in text.splitlines():
        fields = line.split(separator)
        if line.startswith("#") or len(fields) < 3:
            continue
        match = _EVENT.match(fields[2].strip())
        if match is None:
            continue
        name = match["name"]
        try:
            value = float(fields[0].strip().replace(",", "."))
        except ValueError:
            events.setdefault(name, None)
            continue
        events[name] = (events.get(name) or 0.0) + value
    return events


def parse_cachegrind(text: str) -> tuple[dict[str, float], dict[str, dict[str, int]]]:
    """Parse a `cachegrind.out` file: its summary by event, and the simulated caches (`size` and `line` in bytes).

    Raises:
        CountersUnavailableError: the file has no summary, as after a kill.
    """
    names: list[str] = []
    caches: dict[str, dict[str, int]] = {}
    for line in text.splitlines():
        if match := re.match(r"desc: (\w+) cache:\s+(\d+) B, (\d+) B,", line):
            caches[match[1]] = {"size": int(match[2]), "line": int(match[3])}
        elif line.startswith("events:"):
            names = line.split()[1:]
        elif line.startswith("summary:"):
            values = [float(value.replace(",", "")) for value in line.split()[1:]]
            if names and len(values) == len(names):
                return dict(zip(names, values, strict=True)), caches
    raise CountersUnavailableError("cachegrind's output file has no summary: its run was cut short")


def _perf_totals(
    argv: Sequence[str], out: Path, events: Sequence[str], *, repeats: int, timeout_s: float
) -> dict[str, float | None]:
    perf = find_tool("perf")
    if perf is None:
        raise CountersUnavailableError("perf is not installed")
    wanted = ",".join(f"{event}:u" for event in events)
    command = [str(perf), "stat", "-x", ";", "-r", str(repeats), "-o", str(out), "-e", wanted, "--", *argv]
    done = _run("perf", command, timeout_s)
    text = out.read_text(encoding="utf-8", errors="replace") if out.exists() else ""
    found = parse_perf_csv(text)
    if "instructions" in events and not found.get("instructions"):
        refused = re.search(r"^.*(?:not permitted|[Pp]ermission|limited|denied|paranoid).*$", done.stderr, re.MULTILINE)
        if refused:
            raise CountersUnavailableError(f"perf may not read counters ({refused[0].strip()})")
        _check("perf", done)
        raise CountersUnavailableError("perf reads no hardware counters here (usual in a virtual machine)")
    _check("perf", done)
    return found


def _cachegrind_totals(
    argv: Sequence[str], folder: Path, *, timeout_s: float
) -> tuple[dict[str, float], dict[str, dict[str, int]]]:
    valgrind = find_tool("valgrind")
    if valgrind is None:
        raise CountersUnavailableError("valgrind is not installed")
    # One file per process that the command becomes or starts; launchers cancel out with those of the empty run.
    # A relative name, since a walled run sees the folder elsewhere.
    tool = [str(valgrind), *_CACHEGRIND, *_simulated_caches(cpu_facts()), "--cachegrind-out-file=cachegrind.out.%p"]
    done = _run("cachegrind", under_tool(argv, folder, tool), timeout_s, cwd=folder)
    _check("cachegrind", done)
    totals: dict[str, float] = {}
    caches: dict[str, dict[str, int]] = {}
    for path in sorted(folder.glob("cachegrind.out.*")):
        if not stat.S_ISREG(path.lstat().st_mode):  # the kernel may write here too: a pipe would never end
            raise CountersUnavailableError(f"the run under cachegrind left a {path.name} that is no file")
        events, caches = parse_cachegrind(path.read_text(encoding="utf-8", errors="replace"))
        for name, value in events.items():
            totals[name] = totals.get(name, 0.0) + value
    if not totals:
        raise CountersUnavailableError("cachegrind wrote no output file")
    return totals, caches


def _simulated_caches(facts: DeviceFacts) -> list[str]:
    """Options that give the simulation this machine's caches: valgrind's own detection adds up all those of a socket.

    It wants a power of two of sets, so sizes such as 30 MiB get the associativity (8 to 31 ways) that makes it one.
    """
    last_level = facts.l3_bytes or facts.l2_bytes
    options = []
    for name, size in (("D1", facts.l1d_bytes), ("LL", last_level)):
        ways = next((w for w in range(8, 32) if size and size % (64 * w) == 0 and _power_of_two(size // (64 * w))), 0)
        if ways:
            options.append(f"--{name}={size},{ways},64")
    return options


def _power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def _run(tool: str, command: Sequence[str], timeout_s: float, cwd: Path | None = None) -> Completed:
    if timeout_s <= 0:
        raise CountersUnavailableError(f"{tool} ran past its time limit")
    try:
        done = run_process(command, timeout_s=timeout_s, cwd=cwd, env={**_ENVIRONMENT, "PATH": search_path()})
    except OSError as error:
        raise CountersUnavailableError(f"{tool} cannot be started ({error})") from error
    if done.timed_out:
        raise CountersUnavailableError(f"the run under {tool} took longer than {timeout_s:.1f} s")
    return done


def _check(tool: str, done: Completed) -> None:
    if done.returncode == 0:
        return
    # A launcher in between reports a signal as 128 + its number.
    number = -done.returncode if done.returncode < 0 else done.returncode - 128
    unknown = "unhandled instruction" in done.stderr or "Unrecognised instruction" in done.stderr
    if tool == "cachegrind" and (unknown or number == signal.SIGILL):
        raise CountersUnavailableError("valgrind does not know an instruction of this kernel (it has no AVX-512)")
    lines = [line for line in done.stderr.strip().splitlines() if line.strip("= 0123456789")]
    said = f": {lines[-1].strip()}" if lines else ""
    ended = signal.Signals(number).name if number in set(signal.Signals) else f"exit code {done.returncode}"
    raise CountersUnavailableError(f"the run under {tool} ended with {ended}{said}")


def _counts_from_perf(events: Mapping[str, float | None]) -> Counts:
    return Counts(
        instructions=events.get("instructions"),
        cycles=events.get("cycles"),
        data_refs=events.get("L1-dcache-loads"),
        l1_misses=events.get("L1-dcache-load-misses"),
        llc_refs=events.get("LLC-loads"),
        llc_misses=events.get("LLC-load-misses"),
        branches=events.get("branches"),
        mispredicts=events.get("branch-misses"),
    )


def _counts_from_cachegrind(events: Mapping[str, float], line_bytes: int) -> Counts:
    def total(*names: str) -> float | None:
        return sum(events[name] for name in names) if all(name in events for name in names) else None

    return Counts(
        instructions=total("Ir"),
        data_refs=total("Dr", "Dw"),
        l1_misses=total("D1mr", "D1mw"),
        llc_refs=total("D1mr", "D1mw"),
        llc_misses=total("DLmr", "DLmw"),
        branches=total("Bc", "Bi"),
        mispredicts=total("Bcm", "Bim"),
        line_bytes=line_bytes,
    )


def _difference(full: Counts, empty: Counts, noise: float) -> Counts:
    """Counts of the kernel alone. An event that differs by less than the noise was counted, and is as good as none.

    Raises:
        CountersUnavailableError: not even the instructions rise above the noise.
    """

    def less(of: float | None, base: float | None) -> float | None:
        if of is None or base is None or of - base < -noise * base:
            return None
        return max(0.0, of - base)

    if full.instructions is None or empty.instructions is None:
        raise CountersUnavailableError("instructions were not counted")
    if full.instructions - empty.instructions <= noise * empty.instructions:
        raise CountersUnavailableError("the kernel is too short to be told from its process's start-up")
    return Counts(
        instructions=less(full.instructions, empty.instructions),
        cycles=less(full.cycles, empty.cycles),
        data_refs=less(full.data_refs, empty.data_refs),
        l1_misses=less(full.l1_misses, empty.l1_misses),
        llc_refs=less(full.llc_refs, empty.llc_refs),
        llc_misses=less(full.llc_misses, empty.llc_misses),
        branches=less(full.branches, empty.branches),
        mispredicts=less(full.mispredicts, empty.mispredicts),
        line_bytes=full.line_bytes,
    )
