"""Text pages of Nsight Compute (no `--csv`), in both dialects, for those who only kept a log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from profiling.findings import RuleFinding

_PROCESS = re.compile(r"^\[(?P<id>\d+)\] (?P<name>\S.*?)@\S+\s*$")
_KERNEL = re.compile(
    r"^ {0,4}(?P<name>\S.*?)(?: (?P<grid>\(\d+, \d+, \d+\))x(?P<block>\(\d+, \d+, \d+\)))?"
    r"(?:, \d{4}-\w{3}-\d{2} \d{2}:\d{2}:\d{2})?, Context \d+, Stream \d+(?:, Device \d+, CC [\d.]+)?\s*$"
)
_SECTION = re.compile(r"^\s+Section: (?P<name>.+?)\s*$")
_RULER = re.compile(r"^\s*-{3,}( -{3,})+\s*$")
_RULE = re.compile(r"^ {2,}(?P<kind>OPT|INF|WRN|OK) {2,}(?P<text>\S.*)$")
_CONTINUED = re.compile(r"^ {8,}(?P<text>\S.*)$")
_SPEEDUP = re.compile(r"Est\. (?P<local>Local )?Speedup: (?P<percent>[\d.]+)%\s*")
_ROW = re.compile(r"^\s+(?P<label>\S.*?)\s{2,}(?:(?P<unit>\S+)\s+)?(?P<value>\(!\) n/a|\S+)\s*$")


@dataclass(frozen=True, slots=True)
class TextRow:
    """One metric, or one rule, of the kernel that `identity` names (keys as the CSV's identity columns)."""

    identity: Mapping[str, str]
    label: str = ""
    unit: str = ""
    value: str = ""
    rule: RuleFinding | None = None


def read_text_page(text: str) -> Iterator[TextRow]:
    """Metrics and rules, launch by launch. Text of another kind gives nothing."""
    process: dict[str, str] = {}
    identity: dict[str, str] | None = None
    section, columns, rule, number = "", None, None, 0
    for line in text.splitlines():
        if rule is not None and (more := _CONTINUED.match(line)) and not _SECTION.match(line):
            rule = (rule[0], f"{rule[1]} {more['text'].strip()}")
            continue
        if rule is not None and identity is not None:
            yield TextRow(identity, rule=_finding(identity["Kernel Name"], section, *rule))
            rule = None
        if match := _PROCESS.match(line):
            process = {"Process ID": match["id"], "Process Name": match["name"]}
        elif match := _KERNEL.match(line):
            sizes = {"Grid Size": match["grid"] or "", "Block Size": match["block"] or ""}
            identity = {"ID": str(number), **process, "Kernel Name": match["name"].strip(), **sizes}
            number += 1
            section, columns = "", None
        elif identity is None:
            continue
        elif match := _SECTION.match(line):
            section, columns = match["name"], None
        elif _RULER.match(line):
            columns = [m.span() for m in re.finditer(r"-+", line)]
        elif match := _RULE.match(line):
            rule = (match["kind"], match["text"].strip())
        elif section and (cells := _cells(line, columns)) and cells[0] != "Metric Name":
            yield TextRow(identity, *cells)
    if rule is not None and identity is not None:
        yield TextRow(identity, rule=_finding(identity["Kernel Name"], section, *rule))


def _cells(line: str, columns: list[tuple[int, int]] | None) -> tuple[str, str, str] | None:
    """Label, unit and value: by the ruler's columns where there is one, else by the gaps."""
    if columns is not None and len(columns) == 3 and len(line.rstrip()) <= columns[2][1]:
        label, unit, value = (line[start:end].strip() for start, end in columns)
        between = line[columns[0][1] : columns[1][0]] + line[columns[1][1] : columns[2][0]]
        if label and value and not between.strip():
            return label, unit, value
    match = _ROW.match(line)
    return (match["label"], match["unit"] or "", match["value"]) if match else None


def _finding(kernel: str, section: str, kind: str, text: str) -> RuleFinding:
    """A rule as text pages print it: they leave out its name, so the section stands for it."""
    estimate = _SPEEDUP.search(text)
    return RuleFinding(
        kernel=kernel,
        rule=section,
        kind=kind,
        text=_SPEEDUP.sub("", text, count=1).strip(),
        speedup_kind=("local" if estimate["local"] else "global") if estimate else None,
        speedup_percent=float(estimate["percent"]) if estimate else None,
    )
