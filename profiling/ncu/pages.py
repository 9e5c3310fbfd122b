"""Reads what Nsight Compute prints: raw, details and summary pages as CSV, and text pages, of all its versions.

Columns are found by name, never by place; values are in base units; a value that is not a number is missing, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from profiling.findings import RuleFinding
from profiling.ncu.faults import NcuFault, diagnose
from profiling.ncu.names import raw_name
from profiling.ncu.tables import IDENTITY, CutOffError, Table, UnitsMissingError, decode, find_tables
from profiling.ncu.text_pages import TextRow, read_text_page
from profiling.ncu.units import base_unit, parse_number

# Counters of different passes may disagree a little: a hit rate of 100.9% is 100%. What is further off is no share.
_ROUNDING_ABOVE_100 = 110.0
_INACCESSIBLE = re.compile(r"Unable to access the following \d+ metrics?: *(.+)")


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of one kernel; of a summary page, all launches of it.

    Attributes:
        id: ncu's number of the launch, unique within its process; empty where the page has none.
        process: id and name of the process, empty where the page has none.
        name: the kernel's, as printed.
        grid, block: None where the page has none.
        metrics: raw-page name to value in base units; what was not measured is not there.
        units: the base unit of each.
        labels: raw-page name to the label it was printed under, where that differs.
        missing: names that were asked for and have no value (`n/a`, `nan`).
        clamped: percentages that were printed a little above 100.
        invocations: launches that the values are means of (summary page), else 1.
    """

    id: str
    process: str
    name: str
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    metrics: Mapping[str, float]
    units: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    clamped: tuple[str, ...] = ()
    invocations: int = 1


@dataclass(frozen=True, slots=True)
class Pages:
    """What a report or a log holds: launches in order, ncu's rules, and its warnings."""

    launches: tuple[Launch, ...]
    rules: tuple[RuleFinding, ...]
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Draft:
    """A launch while its rows are read."""

    identity: Mapping[str, str]
    metrics: dict[str, float] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    clamped: list[str] = field(default_factory=list)
    invocations: int = 1

    def add(self, label: str, unit: str, cell: str) -> None:
        name = raw_name(label, unit.strip())
        value = parse_number(cell)
        scale, base = base_unit(unit)
        if value is None:
            if _says_missing(cell) and name not in self.metrics:
                self.missing.append(name)
            return
        value *= scale
        if base == "%" and 100.0 < value <= _ROUNDING_ABOVE_100:
            self.clamped.append(name)
            value = 100.0
        self.metrics[name] = value
        self.units[name] = base
        if name != label:
            self.labels[name] = label

    def finished(self) -> Launch:
        cell = self.identity.get
        process = " ".join(filter(None, (cell("Process ID", ""), cell("Process Name", ""))))
        return Launch(
            id=cell("ID", ""),
            process=process,
            name=cell("Kernel Name", ""),
            grid=_triple(cell("Grid Size", "")),
            block=_triple(cell("Block Size", "")),
            metrics=self.metrics,
            units=self.units,
            labels=self.labels,
            missing=tuple(dict.fromkeys(name for name in self.missing if name not in self.metrics)),
            clamped=tuple(dict.fromkeys(self.clamped)),
            invocations=self.invocations,
        )


def parse_pages(data: bytes | str) -> Pages:
    """Read any page of Nsight Compute, CSV or text, from a file or a log.

    Raises:
        NcuFault: no kernel is in it; says which known fault the text tells of, or that it is no output of ncu.
    """
    text = decode(data) if isinstance(data, bytes) else data.removeprefix("\ufeff")
    drafts: dict[tuple[str, ...], _Draft] = {}
    rules: list[RuleFinding] = []
    try:
        tables = find_tables(text)
    except (UnitsMissingError, CutOffError) as error:
        raise NcuFault(
            "output", f"not an ncu CSV that can be read: {error}", "export it again with ncu --page raw --csv"
        ) from error
    for number, table in enumerate(tables):
        _read_table(table, number, drafts, rules)
    if not tables:
        for row in read_text_page(text):
            _read_text_row(row, drafts, rules)
    launches = tuple(draft.finished() for draft in drafts.values())
    if not any(launch.metrics or launch.missing for launch in launches):
        raise diagnose(text) or _not_ncu(text, bool(tables))
    return Pages(launches, _ranked(rules), _warnings(text))


def merge(raw: Pages, details: Pages) -> Pages:
    """The raw page's launches with the rules of the details page of the same report."""
    return Pages(raw.launches, details.rules, tuple(dict.fromkeys(raw.warnings + details.warnings)))


def _read_table(table: Table, number: int, drafts: dict[tuple[str, ...], _Draft], rules: list[RuleFinding]) -> None:
    for record in table.records:
        # Two processes may both have an ID 0; the pages of one report name a launch alike.
        key = tuple(record.get(name, "") for name in ("ID", "Process ID", "Process Name", "Kernel Name", "Grid Size"))
        if table.layout == "summary":
            key = (f"summary {number}", *key, record.get("Block Size", ""))
        draft = drafts.setdefault(key, _Draft({name: record.get(name, "").strip() for name in IDENTITY}))
        if table.layout == "wide":
            for column in table.columns:
                draft.add(column, table.units[column], record.get(column, ""))
            continue
        if record.get("Metric Name", "").strip():
            value = record["Average"] if table.layout == "summary" else record["Metric Value"]
            draft.add(record["Metric Name"].strip(), record.get("Metric Unit", ""), value)
        if record.get("Invocations", "").strip().isdigit():
            draft.invocations = int(record["Invocations"])
        if record.get("Rule Name", "").strip():
            rules.append(_rule(record))


def _read_text_row(row: TextRow, drafts: dict[tuple[str, ...], _Draft], rules: list[RuleFinding]) -> None:
    draft = drafts.setdefault((row.identity["ID"],), _Draft(row.identity))
    if row.rule is not None:
        rules.append(row.rule)
    else:
        draft.add(row.label, row.unit, row.value)


def _rule(record: Mapping[str, str]) -> RuleFinding:
    kind = record.get("Estimated Speedup Type", "").strip().lower()
    percent = parse_number(record.get("Estimated Speedup", ""))
    return RuleFinding(
        kernel=record["Kernel Name"].strip(),
        rule=record["Rule Name"].strip(),
        kind=record.get("Rule Type", "").strip() or "INF",
        text=" ".join(record.get("Rule Description", "").split()),
        speedup_kind=_SPEEDUP_KINDS.get(kind),
        speedup_percent=percent,
    )


_SPEEDUP_KINDS: Mapping[str, Literal["global", "local"]] = {"global": "global", "local": "local"}


def _ranked(rules: Iterable[RuleFinding]) -> tuple[RuleFinding, ...]:
    """Each finding once, largest estimate first; estimates of the whole kernel before those of a part."""
    unique = dict.fromkeys(rules)
    return tuple(
        sorted(unique, key=lambda r: (-(r.speedup_percent or 0.0), r.speedup_kind != "global", r.kind != "OPT"))
    )


def _warnings(text: str) -> tuple[str, ...]:
    lines = (line.split("== ", 1)[1].strip() for line in text.splitlines() if re.match(r"==(?:WARNING|ERROR)== ", line))
    return tuple(dict.fromkeys(lines))


def inaccessible(warnings: Iterable[str]) -> tuple[str, ...]:
    """Metrics that ncu says it could not access."""
    found = (match[1] for line in warnings if (match := _INACCESSIBLE.search(line)))
    return tuple(dict.fromkeys(name.strip() for names in found for name in names.split(",") if name.strip()))


def _not_ncu(text: str, header: bool) -> NcuFault:
    if not text.strip():
        return NcuFault("output", "not an ncu CSV: it is empty", "export one with ncu --import REPORT --page raw --csv")
    if header:
        what = "an ncu CSV without a single kernel"
        return NcuFault("no-kernels", what, "profile again and check that kernels were launched")
    what = "not an ncu CSV: it has no whole header with quoted ncu columns such as ID, Kernel Name and Metric Name"
    return NcuFault("output", what, "export one with ncu --import REPORT --page raw --csv")


def _says_missing(cell: str) -> bool:
    return cell.strip().lower() in {"(!) n/a", "n/a", "(!) nan", "nan", "-nan", "inf", "-inf", "no data"}


def _triple(cell: str) -> tuple[int, int, int] | None:
    numbers = re.findall(r"\d+", cell)
    if len(numbers) != 3:
        return None
    x, y, z = map(int, numbers)
    return x, y, z
