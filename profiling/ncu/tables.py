"""Finds the CSV tables of Nsight Compute in text that may hold anything else: logs, warnings, a program's prints."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Layout = Literal["long", "wide", "summary"]

IDENTITY = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Kernel Time",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
)
_OTHERS = ("Section Name", "Invocations")
_HEADER_START = re.compile(r'"(?:ID|Process ID|Kernel Name)" *,')
_BARE_HEADER_START = re.compile(r"(?:ID|Process ID|Kernel Name) *,")
# A quoted field may hold line breaks, a stray quote in a program's output may open none: look this far, then give up.
_LONGEST_RECORD = 40
# Id and process id: what a record of ncu begins with, and hardly anything that a program prints.
_RECORD_START = re.compile(r'"\d+","\d+",')
_MOST_STARTS = 20


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its columns by name, and its records as cells by column name.

    Attributes:
        layout: `long` is a metric per row, `wide` a kernel per row, `summary` a metric per row over all launches.
        columns: metric columns of a wide table, in order; empty otherwise.
        units: of a wide table, the unit of each metric column.
        records: the rows, the row of units left out.
    """

    layout: Layout
    columns: tuple[str, ...]
    units: Mapping[str, str]
    records: tuple[Mapping[str, str], ...]


class UnitsMissingError(ValueError):
    """A wide table without its second row: no value in it can be read."""


class CutOffError(ValueError):
    """A table whose last record is not whole: what stands before it is only a part of what was profiled."""


def decode(data: bytes) -> str:
    """Text of a page as any shell or system wrote it: UTF-8, UTF-8 with a byte-order mark, UTF-16."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    if data[1:200:2].count(0) > 40:
        return data.decode("utf-16-le", errors="replace")
    return data.decode("utf-8-sig", errors="replace")


def find_tables(text: str) -> list[Table]:
    """All tables in `text`, in order.

    Raises:
        UnitsMissingError: a table of the raw page lacks its row of units.
        CutOffError: a table ends in the middle of a record.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    starts = [(i, header) for i, line in enumerate(lines) if (header := _header(line)) is not None]
    ends = [i for i, _ in starts[1:]] + [len(lines)]
    return [_table(header, lines[start + 1 : end]) for (start, header), end in zip(starts, ends, strict=False)]


def _header(line: str) -> list[str] | None:
    if "Kernel Name" not in line:
        return None
    match = _HEADER_START.search(line) or _BARE_HEADER_START.match(line.lstrip("\ufeff "))
    if match is None:
        return None
    cells = _cells(line[match.start() :] if line[match.start()] == '"' else line.lstrip("\ufeff "))
    cells = [cell.strip() for cell in cells]
    return cells if _layout(cells) is not None else None


def _layout(header: list[str]) -> Layout | None:
    names = set(header)
    if {"Kernel Name", "Metric Name", "Metric Unit"} <= names:
        return "long" if "Metric Value" in names else "summary" if "Average" in names else None
    if {"ID", "Kernel Name"} <= names and any("__" in name for name in _metric_columns(header)):
        return "wide"
    return None


def _metric_columns(header: list[str]) -> list[str]:
    # NVTX ranges stand between the host's name and the kernel's, under names that hold their own format.
    return [n for n in header if n and n not in IDENTITY and n not in _OTHERS and "Domain:" not in n]


def _table(header: list[str], lines: list[str]) -> Table:
    layout = _layout(header)
    assert layout is not None
    shape = _Shape(header, layout)
    records = [dict(zip(header, cells, strict=False)) for cells in _records(lines, shape)]
    if layout != "wide":
        return Table(layout, (), {}, tuple(records))
    columns = tuple(_metric_columns(header))
    units = next((record for record in records if not record[shape.number].strip()), None)
    rows = tuple(record for record in records if record[shape.number].strip())
    if units is None and rows:
        raise UnitsMissingError("the row of units under the header is missing, so no value can be read")
    return Table(layout, columns, {name: (units or {}).get(name, "") for name in columns}, rows)


class _Shape:
    """What a record of a table looks like."""

    def __init__(self, header: list[str], layout: Layout) -> None:
        last = {"long": "Metric Value", "summary": "Average", "wide": header[-1]}[layout]
        # A row of a long table ends with its value, or with an empty cell after it; rules fill the columns behind.
        self.fewest = header.index(last) + 1
        self.most = len(header)
        self.number = "ID" if "ID" in header else "Invocations" if "Invocations" in header else "Kernel Name"
        self._at = header.index(self.number)
        self._identity = [i for i, name in enumerate(header) if name in IDENTITY] if layout == "wide" else []

    def fits(self, cells: list[str]) -> bool:
        """Whether these are a record's cells, or those of the row of units."""
        if not self.fewest <= len(cells) <= self.most:
            return False
        number = cells[self._at].strip()
        if self.number == "Kernel Name":
            return bool(number)
        return number.isdigit() or (bool(self._identity) and not any(cells[i].strip() for i in self._identity))


def _records(lines: list[str], shape: _Shape) -> Iterator[list[str]]:
    """Cells of each line that is a record, whatever stands between them. Raises CutOffError."""
    i = 0
    cut_off = False
    while i < len(lines):
        line, used = lines[i], 1
        first = len(line)
        cells = None
        if line.strip() and not line.startswith("=="):
            cells = _fitting(line, first, shape)
            while cells is None and line.count('"') % 2 and used < _LONGEST_RECORD and i + used < len(lines):
                line += "\n" + lines[i + used]
                used += 1
                if line.count('"') % 2 == 0:
                    cells = _fitting(line, first, shape)
        if cells is not None:
            yield cells
            cut_off = False
        elif _RECORD_START.match(lines[i]):
            cut_off = True
        i += used if cells is not None else 1
    if cut_off:
        raise CutOffError("its last line is cut off, so kernels or metrics are lost")


def _fitting(record: str, within: int, shape: _Shape) -> list[str] | None:
    """The cells, of the whole or of what follows a print that was not ended by a newline; None where none fit.

    A record starts in the first `within` characters, its first line.
    """
    glued = re.finditer(r'(?<!,)"(?=\w*",")', record[:within])
    for start in [0, *(m.start() for m in glued if m.start())][:_MOST_STARTS]:
        cells = _cells(record[start:])
        while len(cells) > shape.most and not cells[-1]:
            cells.pop()
        if shape.fits(cells):
            return cells
    return None


def _cells(record: str) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(record), strict=True), [])
    except csv.Error:
        return []
