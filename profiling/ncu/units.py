"""Numbers and units as Nsight Compute prints them, of all its versions, in base units: s, byte, hz, cycle, inst …"""

from __future__ import annotations

import re

_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_TIMES |= {f"{prefix}sec": _TIMES[f"{prefix}s"] for prefix in ("", "m", "u", "n")}
_TIMES |= {f"{prefix}second": _TIMES[f"{prefix}s"] for prefix in ("", "m", "u", "n")}
_SPELLINGS = {"bytes": "byte", "b": "byte", "thr": "thread", "percent": "%", "sectors": "sector"}
# Digits grouped by threes or not at all; `15 (5; 10)` is a value followed by its instances.
_NUMBER = re.compile(r"([-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?(?:[eE][-+]?\d+)?)(?:\s+\(.*\))?")


def parse_number(text: str) -> float | None:
    """The number in a cell; None for `n/a`, `(!) n/a`, `nan`, `inf`, `no data`, blanks, dates, sizes and words."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None or not any(char.isdigit() for char in match[1]):
        return None
    try:
        return float(match[1].replace(",", ""))
    except ValueError:
        return None


def base_unit(unit: str) -> tuple[float, str]:
    """What to multiply a value in `unit` by, and the base unit it then has.

    Prefixes are decimal (10,240,000 byte is 10.24 Mbyte). Both dialects are known: `usecond` and `us`, `Gbyte/second`
    and `Gbyte/s`, `cycle/nsecond` and `Ghz`. An unknown unit is left as it is.
    """
    above, slash, below = unit.strip().partition("/")
    scale, base = _part(above)
    if not slash:
        return scale, base
    divisor, per = _part(below)
    if base == "cycle" and per == "s":
        return scale / divisor, "hz"
    return scale / divisor, f"{base}/{per}"


def _part(unit: str) -> tuple[float, str]:
    lower = unit.strip().lower()
    if lower in _TIMES:
        return _TIMES[lower], "s"
    for stem, base in (("bytes", "byte"), ("byte", "byte"), ("hz", "hz")):
        prefix = lower.removesuffix(stem)
        if prefix != lower and prefix in _PREFIXES:
            return _PREFIXES[prefix], base
    if len(lower) == 2 and lower[1] == "b" and lower[0] in _PREFIXES:
        return _PREFIXES[lower[0]], "byte"
    return 1.0, _SPELLINGS.get(lower, unit.strip())
