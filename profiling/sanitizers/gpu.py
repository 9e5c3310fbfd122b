"""compute-sanitizer over one call of a GPU kernel: how it is asked, and what its log says.

Its lines go to a log file of their own, so that what the kernel prints is never taken for a finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backends.process import Completed, run_process
from profiling.gpu_tools import find_gpu_tool
from profiling.sanitizers.findings import LOST_REPORT, Finding, Outcome, Tool, Unavailable
from profiling.sanitizers.placed import buffer_names

MISSING = "compute-sanitizer is not installed; it comes with the CUDA toolkit"
_FOUND = 99
_MOST_LOG = 4 << 20
_NEAR_BYTES = 4096
_PORT, _PORTS = 49152, 16  # the tool tries ten from where it is told to begin
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    # Allocations lie 512 bytes apart at most: without room between them the first bytes past one may be the next one's.
    "memcheck": ("--padding", "512", "--report-api-errors", "no"),
    "racecheck": ("--racecheck-report", "analysis"),
}
# Headlines that are no finding about the kernel: the tool's own, sums, and what an error did to the program.
_ASIDE = re.compile(
    r"COMPUTE-SANITIZER|\w+ SUMMARY|Target application|Program hit|Error|Warning|Info|Attach|Detach|Internal|No |Saved",
    re.IGNORECASE,
)
# A race counts at any severity: what its warnings speak of, warps taken to run in lock-step, is no more so since Volta.
_RACES = "Race reported between"
_FRAMEWORK = re.compile(r"COMPUTE-SANITIZER|\w+ SUMMARY")
_BLIND = re.compile(r"Internal Sanitizer Error: .*|.*[Mm]ight go undetected.*|.*[Rr]esults might be incorrect.*")
_ERRORS = re.compile(r"ERROR SUMMARY: ([\d,]+) errors?(?! were not)")
_HAZARDS = re.compile(r"RACECHECK SUMMARY: ([\d,]+) hazards? displayed")
_DETAIL = re.compile(r"  | (?:at|by|and|in|Address|Access|Barrier is|Device Frame|Host Frame|Saved|Current)\b")
_PLACE = re.compile(r"([^/\s]+\.\w+):([1-9]\d*)(?=[\s:\[]|$)")
_FUNCTION = re.compile(r"^\s*at (?:0x[0-9a-f]+ in )?(?P<name>.+?)(?:[+:]0x[0-9a-f]+)?(?: in .*)?$")
_NEAREST = re.compile(
    r"is (?P<bytes>[\d,]+) bytes (?P<side>after|before) the nearest allocation at (?P<begin>0x[0-9a-f]+)"
)
_RACE = re.compile(r"(?P<what>(?:Read|Write|Atomic) access) at (?P<rest>.*?)(?= and (?:Read|Write|Atomic) access|$)")
_TIMES = re.compile(r"\[(\d+) hazards?\]")


@dataclass(frozen=True, slots=True)
class _Block:
    """One headline with the lines under it."""

    head: str
    details: tuple[str, ...]


def find_sanitizer() -> Path | None:
    """The installed compute-sanitizer, where CUDA toolkits have it."""
    return find_gpu_tool("compute-sanitizer")


def sanitizer_command(program: Path, tool: Tool, log: Path, number: int = 0) -> list[str]:
    """The part of the command before the kernel's program; `number` tells runs side by side apart."""
    return [
        *(str(program), "--tool", tool, "--target-processes", "all", "--port", str(_PORT + _PORTS * number)),
        # How the program ends is ours to judge: an exit code is not to be counted among the errors.
        *("--error-exitcode", str(_FOUND), "--check-exit-code", "no"),
        *("--show-backtrace", "device", "--print-limit", "64", "--log-file", str(log)),
        *_OPTIONS.get(tool, ()),
    ]


def run(
    tool: Tool,
    command: Sequence[str],
    source: str,
    names: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    number: int = 0,
) -> Outcome:
    """One call under one tool.

    Args:
        tool: `memcheck`, `racecheck`, `initcheck` or `synccheck`.
        command: makes the call, on inputs with tensors apart.
        source: file name of the kernel.
        names: of its arguments.
        folder: a private one, for the log.
        environment: what the command needs.
        timeout_s: wall limit.
        number: of this run among those side by side.
    """
    program = find_sanitizer()
    if program is None:
        return Unavailable(tool, MISSING)
    log = folder / f"{tool}.log"
    log.unlink(missing_ok=True)
    try:
        done = run_process(
            [*sanitizer_command(program, tool, log, number), *command], timeout_s=timeout_s, env=environment, cwd=folder
        )
        with log.open("rb") as written:
            text = written.read(_MOST_LOG).decode(errors="replace")
    except FileNotFoundError:
        text = ""
    except OSError as error:
        return Unavailable(tool, f"{program} cannot be run: {error.strerror or error}")
    return judge(done, text, tool, source, names, timeout_s)


def judge(done: Completed, log: str, tool: Tool, source: str, names: Sequence[str], timeout_s: float) -> Outcome:
    """What a run means: findings where the log has them, clean only where the log sums up to none."""
    if done.timed_out:
        return Unavailable(tool, f"the call took longer than {timeout_s:g} s under it")
    found = parse_log(log, tool, source, buffer_names(done.stdout, names))
    if found:
        return found
    reported = _reported(log)
    if reported:
        return (Finding(tool, LOST_REPORT, f"{reported} errors, of a kind that is not known here", None, reported),)
    blind = _BLIND.search(log)
    if reported == 0 and done.returncode == 0 and blind is None:
        return ()
    if done.returncode == _FOUND:
        return (Finding(tool, LOST_REPORT, "it reported an error, and its report is gone", None, 1),)
    own = [line.removeprefix("=========").strip() for line in log.splitlines() if line.startswith("=========")]
    said = [line for line in (*own, *done.stderr.splitlines()) if line.strip() and not _FRAMEWORK.match(line)]
    last = f": {(blind[0] if blind else said[-1]).strip('= ')[:200]}" if said else ""
    return Unavailable(tool, f"the call ended with exit code {done.returncode} under it{last}")


def parse_log(log: str, tool: Tool, source: str, places: Mapping[int, str]) -> tuple[Finding, ...]:
    """The findings that compute-sanitizer's text tells of."""
    found = []
    for block in _blocks(log):
        if _RACES in block.head:
            found.append(_race(tool, block, source))
        elif block.details and not _ASIDE.match(block.head):
            found.append(_bad_access(tool, block, source, places))
    return tuple(found)


def _reported(log: str) -> int | None:
    """How many errors the log sums up, None where it does not."""
    counts = [int(n.replace(",", "")) for pattern in (_ERRORS, _HAZARDS) for n in pattern.findall(log)]
    return sum(counts) if counts else None


def _blocks(log: str) -> Iterator[_Block]:
    head, details = "", []
    for line in log.splitlines():
        if not line.startswith("========="):
            continue
        text = line[9:]
        if _DETAIL.match(text):
            details.append(text.strip())
            continue
        if head:
            yield _Block(head, tuple(details))
        head, details = text.strip(), []
    if head:
        yield _Block(head, tuple(details))


def _bad_access(tool: Tool, block: _Block, source: str, places: Mapping[int, str]) -> Finding:
    device = [d for d in block.details if not d.startswith(("Saved host", "Host Frame", "in /"))]
    functions = [_FUNCTION.match(d) for d in device if d.startswith("at ")]
    name = next((m["name"].rpartition(":")[2] for m in functions if m), "")
    parts = [block.head.rstrip(".")]
    nearest = next((m for m in map(_NEAREST.search, device) if m), None)
    if nearest is not None and int(nearest["bytes"].replace(",", "")) <= _NEAR_BYTES:
        of = places.get(int(nearest["begin"], 16), "the nearest allocation")
        parts.append(f"{nearest['bytes']} bytes {nearest['side']} {of}")
    elif any("misaligned" in d for d in device):
        parts.append("misaligned")
    elif nearest is not None:
        parts.append("far from every allocation")
    parts += [f"in {name}"] if name else []
    return Finding(tool, block.head.rstrip("."), ", ".join(parts), _where(device, source), 1)


def _race(tool: Tool, block: _Block, source: str) -> Finding:
    lines = (block.head, *block.details)
    accesses = []
    for line in lines:
        for match in _RACE.finditer(line):
            at = _where([match["rest"]], source)
            accesses.append(f"{match['what'].capitalize()}{f' at {at}' if at else ''}")
    times = [int(n) for line in lines for n in _TIMES.findall(line)]
    kind = "race within a warp" if block.head.lower().startswith("warning") else "race"
    message = f"{kind}: {' and '.join(dict.fromkeys(accesses))}" if accesses else block.head
    return Finding(tool, kind, message, _where(lines, source), sum(times) or 1)


def _where(lines: Sequence[str], source: str) -> str | None:
    """The first place in the kernel's own source, else the first at all."""
    found = [f"{file}:{line}" for text in lines for file, line in _PLACE.findall(text)]
    return next((place for place in found if place.rpartition(":")[0] == source), found[0] if found else None)
