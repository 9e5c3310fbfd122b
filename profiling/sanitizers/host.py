"""AddressSanitizer and ThreadSanitizer over one call of a C++ kernel, behind a worker's walls.

Kernel and runner are built with the same `-fsanitize`. The call is made on staged inputs, each tensor in memory of its
own. Reports come unsymbolised, since nothing behind the walls may start a symboliser; lines are looked up outside.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from backends.host_compiler import find_tool
from backends.process import Completed, run_process
from backends.types import Backend, BuildSpec, Rejected, Signature
from profiling.harness.launcher import worker_environment
from profiling.harness.runner_build import build_sanitized_runner
from profiling.harness.walled import solo_command
from profiling.sanitizers.findings import LOST_REPORT, Finding, Outcome, Tool, Unavailable
from profiling.sanitizers.placed import buffer_names
from profiling.types import HarnessFault

_FOUND = 99  # the exit status that a sanitizer is told to end with once it has reported something
_COMMON = f"exitcode={_FOUND}:symbolize=0:color=never:allocator_may_return_null=1"
# A wide zone around each allocation, so that a stride past its end is caught too. Leaks are no fault of one call.
_OPTIONS = {
    "address": {"ASAN_OPTIONS": f"{_COMMON}:redzone=1024:detect_leaks=0"},
    # A pool of threads may outlive the call.
    "thread": {"TSAN_OPTIONS": f"{_COMMON}:report_signal_unsafe=0:report_thread_leaks=0:atexit_sleep_ms=0"},
}
# Reads that nothing depends on are gone at -O3; the lines of a report are right at -O1.
_BUILD = ("-O1", "-g", "-fno-omit-frame-pointer")
_ADDR2LINE_S = 10.0
_HEAD = re.compile(
    r"^(?:==\d+==\s*)?(?:ERROR|WARNING): (?:Address|Thread)Sanitizer: (?P<kind>[\w -]*[\w-])", re.MULTILINE
)
_ABOUT_ITSELF = "memory layout"  # ThreadSanitizer starts itself again where addresses are too random for it
_ACCESS = re.compile(
    r"^ *(?P<what>(?:Previous )?(?:atomic )?(?:READ|WRITE|[Rr]ead|[Ww]rite) of size \d+)", re.MULTILINE
)
_FRAME = re.compile(r"^ *#\d+ .*\((?P<module>[^()]*)\+0x(?P<offset>[0-9a-f]+)\)", re.MULTILINE)
_REGION = re.compile(
    r"is located (?P<bytes>\d+) bytes (?P<side>after|before|to the right of|to the left of|inside of) "
    r"\d+-byte region \[(?P<begin>0x[0-9a-f]+),"
)
_SIDES = {"to the right of": "after", "to the left of": "before", "inside of": "inside"}
_KERNEL_MODULES = ("/proc/self/fd/4", "4")  # the descriptor that the runner loads its candidate from


@dataclass(frozen=True, slots=True)
class SanitizedBuild:
    """A kernel and its runner, built with one sanitizer. `source` is the kernel's file name."""

    tool: Tool
    runner: Path
    kernel: Path
    source: str


def build(
    tool: Tool, backend: Backend, signature: Signature, source: Path, spec: BuildSpec, cache: Path
) -> SanitizedBuild | Unavailable:
    """Build kernel and runner, or find them in `cache`. Raises ToolchainError: no compiler.

    Args:
        tool: `address` or `thread`.
        backend: the C++ one.
        signature: of the kernel.
        source: the kernel.
        spec: how the task builds it.
        cache: where builds are kept.
    """
    try:
        runner = build_sanitized_runner(signature, cache, tool)
    except HarnessFault as fault:
        return Unavailable(tool, f"the compiler links no program with -fsanitize={tool} ({str(fault)[-200:]})")
    built = backend.build(source, replace(spec, flags=(*spec.flags, *_BUILD, f"-fsanitize={tool}")), cache)
    if isinstance(built, Rejected):
        return Unavailable(tool, f"the kernel does not build with -fsanitize={tool}: {built.reason}")
    return SanitizedBuild(tool, runner, built.artifact, source.name)


def run(built: SanitizedBuild, staged: Path, names: Sequence[str], *, threads: int, timeout_s: float) -> Outcome:
    """One call under the sanitizer.

    Args:
        built: kernel and runner.
        staged: inputs with tensors apart.
        names: of the kernel's arguments.
        threads: that the kernel is told it may use.
        timeout_s: wall limit.
    """
    environment = {**worker_environment(threads), **_OPTIONS[built.tool]}
    done = run_process(solo_command(built.runner, staged, built.kernel), timeout_s=timeout_s, env=environment)
    return judge(done, built.tool, built.kernel, built.source, names, timeout_s)


def judge(done: Completed, tool: Tool, kernel: Path, source: str, names: Sequence[str], timeout_s: float) -> Outcome:
    """What a run under a sanitizer means: clean only where it ended well and nothing was reported."""
    if done.timed_out:
        return Unavailable(tool, f"the call took longer than {timeout_s:g} s under it")
    reports = _reports(done.stderr)
    if reports:
        lines = source_lines(kernel, source, [frame for text in reports for frame in _frames(text)])
        places = buffer_names(done.stdout, names)
        return tuple(_finding(tool, text, lines, places) for text in reports)
    if done.returncode == _FOUND:
        return (Finding(tool, LOST_REPORT, "it reported an error, and its report is gone", None, 1),)
    if done.returncode == 0:
        return ()
    said = next((line.strip() for line in reversed(done.stderr.splitlines()) if line.strip(" =")), "")
    return Unavailable(
        tool, f"the call ended with exit code {done.returncode} under it{f': {said[:200]}' if said else ''}"
    )


def source_lines(kernel: Path, source: str, offsets: Sequence[str]) -> Mapping[str, str]:
    """Offsets in a library to `file:line`, of the kernel's own source where inlined frames reach it."""
    program = find_tool("addr2line")
    wanted = list(dict.fromkeys(offsets))
    if program is None or not wanted:
        return {}
    argv = [str(program), "-i", "-a", "-e", str(kernel), *(f"0x{offset}" for offset in wanted)]
    done = run_process(argv, timeout_s=_ADDR2LINE_S, env={"LC_ALL": "C"})
    found: dict[str, list[str]] = {}
    at = ""
    for line in done.stdout.splitlines():
        if line.startswith("0x"):
            at = f"{int(line, 16):x}"
        elif match := re.match(r"(?P<file>.*):(?P<line>[1-9]\d*)\b", line):
            found.setdefault(at, []).append(f"{os.path.basename(match['file'])}:{match['line']}")
    own = {at: [place for place in places if place.rpartition(":")[0].endswith(source)] for at, places in found.items()}
    return {at: own[at][0] if own[at] else places[0] for at, places in found.items()}


def _reports(text: str) -> list[str]:
    starts = [match.start() for match in _HEAD.finditer(text) if not match["kind"].startswith(_ABOUT_ITSELF)]
    return [text[a:b] for a, b in pairwise([*starts, len(text)])]


def _frames(report: str) -> list[str]:
    """Offsets in the kernel's own code, innermost first."""
    return [f"{int(m['offset'], 16):x}" for m in _FRAME.finditer(report) if m["module"] in _KERNEL_MODULES]


def _finding(tool: Tool, report: str, lines: Mapping[str, str], places: Mapping[int, str]) -> Finding:
    head = _HEAD.search(report)
    assert head is not None
    kind = head["kind"].split(" on ")[0].split(" pid")[0].strip()
    parts, where = [], None
    accesses = list(_ACCESS.finditer(report))
    for match in accesses:
        stack = report[match.end() :].split("\n\n")[0]
        place = next((lines[frame] for frame in _frames(stack) if frame in lines), None)
        where = where or place
        parts.append(match["what"] + (f" at {place}" if place and len(accesses) > 1 else ""))
    region = _REGION.search(report)
    if region is not None:
        name = places.get(int(region["begin"], 16), "a buffer of the kernel's own")
        parts.append(f"{region['bytes']} bytes {_SIDES.get(region['side'], region['side'])} {name}")
    where = where or next((lines[frame] for frame in _frames(report) if frame in lines), None)
    return Finding(tool, kind, f"{kind}: {', '.join(parts)}" if parts else kind, where, 1)
