"""What sanitizers say of one call of a kernel. A tool that did not run to its end has nothing to say: `unavailable`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Tool = Literal["memcheck", "racecheck", "initcheck", "synccheck", "address", "thread"]
GPU_TOOLS: tuple[Tool, ...] = ("memcheck", "racecheck", "initcheck", "synccheck")
HOST_TOOLS: tuple[Tool, ...] = ("address", "thread")
# What these find is wrong whoever does it. The others see hazards that may be meant, so a baseline without any decides.
CERTAIN: frozenset[Tool] = frozenset(("memcheck", "synccheck", "address"))
# The kind of a finding that says only that there was one: the tool reported it, and what it said is gone or not known.
LOST_REPORT = "error"
_MOST_FINDINGS = 8  # of one tool: the rest are mostly the same again
_LONGEST_TEXT = 300


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a tool found, however often.

    Attributes:
        tool: which tool.
        kind: what it is, in the tool's words (`heap-buffer-overflow`, `Invalid __global__ read of size 4 bytes`).
        message: the same with what is known of it, one line, no address and no size of a buffer (a prompt shows it,
            and must not tell the shapes that are tested).
        where: `file:line` in the kernel's source, None where the tool does not say.
        count: how often it was reported.
    """

    tool: Tool
    kind: str
    message: str
    where: str | None
    count: int

    def __str__(self) -> str:
        """One line for people and prompts."""
        where = f" at {self.where}" if self.where and self.where not in self.message else ""
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.tool}: {self.message}{where}{times}"


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A tool that gave no answer, and why. It is never taken for a clean one."""

    tool: Tool
    reason: str


@dataclass(frozen=True, slots=True)
class SanitizerReport:
    """What all tools said of one kernel: each tool is either clean, or has findings, or is unavailable."""

    clean: tuple[Tool, ...]
    findings: tuple[Finding, ...]
    unavailable: tuple[Unavailable, ...]


# What one run of one tool brought: findings (none: it ended clean), or why there is no answer.
Outcome = tuple[Finding, ...] | Unavailable


def report(outcomes: Iterable[tuple[Tool, Outcome]]) -> SanitizerReport:
    """Put runs together: a tool is clean where all its runs were, and what one of them found was found."""
    by_tool: dict[Tool, list[Outcome]] = {}
    for tool, outcome in outcomes:
        by_tool.setdefault(tool, []).append(outcome)
    clean: list[Tool] = []
    findings: list[Finding] = []
    unavailable: list[Unavailable] = []
    for tool, runs in by_tool.items():
        found = merge([f for run in runs if not isinstance(run, Unavailable) for f in run])
        missing = [run for run in runs if isinstance(run, Unavailable)]
        if found:
            findings += found
        elif missing:
            unavailable.append(missing[0])
        else:
            clean.append(tool)
    return SanitizerReport(tuple(clean), tuple(findings), tuple(unavailable))


def merge(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """One of a kind and place, counted, in the words of the first; bounded in number and length."""
    first: dict[tuple[str, ...], Finding] = {}
    for found in findings:
        f = replace(found, message=one_line(found.message), kind=one_line(found.kind))
        same = (f.tool, f.kind, f.where or f.message)
        first[same] = replace(first[same], count=first[same].count + f.count) if same in first else f
    return tuple(first.values())[:_MOST_FINDINGS]


def one_line(text: str) -> str:
    """White space evened out, cut at a bound: what a hostile kernel prints reaches prompts by way of a tool."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= _LONGEST_TEXT else plain[: _LONGEST_TEXT - 1] + "…"
