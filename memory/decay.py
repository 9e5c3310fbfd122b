"""How much evidence is still worth: it halves with age, and with each step that the compiler has made since."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

HALF_LIFE_DAYS = 90.0
"""A record's weight is 2^(-age / 90 days): compilers, drivers and kernels move on."""

PER_MAJOR = 0.5
MOST_MAJOR = 1.5
PER_MINOR = 0.1
MOST_MINOR = 0.4
OTHER = 0.02

# What reads or runs machine code makes no kernel faster or slower.
_NO_COMPILERS = frozenset({"roofclimb", "objdump", "cuobjdump", "nvdisasm"})
_VERSION = re.compile(r"\d+(?:\.\d+)+")


def version_distance(then: Mapping[str, str], now: Mapping[str, str]) -> float:
    """How many halves of its worth a record has lost to the toolchain's changes since: that of the tool furthest off.

    For one tool 0.5 for each major version between (at most 1.5); with equal majors 0.1 for each minor version (at most
    0.4); else 0.02 where they differ at all. A tool that only one side names, what disassembles, and Roofclimb itself
    do not count.
    """
    shared = (then.keys() & now.keys()) - _NO_COMPILERS
    return max((_tool_distance(then[tool], now[tool]) for tool in shared), default=0.0)


def weight(created: datetime, now: datetime, then: Mapping[str, str], versions: Mapping[str, str] | None) -> float:
    """2^-(age in half-lives + version distance); 1 for evidence of today by today's tools.

    Args:
        created: when the record was written; now: both with a time zone.
        then: the record's versions; versions: today's, None where they are not known.
    """
    age_days = max((now - created).total_seconds() / 86400, 0.0)
    moved = 0.0 if versions is None else version_distance(then, versions)
    return float(2 ** -(age_days / HALF_LIFE_DAYS + moved))


def _tool_distance(then: str, now: str) -> float:
    if then == now:
        return 0.0
    a, b = _numbers(then), _numbers(now)
    if not a or not b:
        return OTHER
    if a[0] != b[0]:
        return min(PER_MAJOR * abs(a[0] - b[0]), MOST_MAJOR)
    if a[1] != b[1]:
        return min(PER_MINOR * abs(a[1] - b[1]), MOST_MINOR)
    return OTHER


def _numbers(text: str) -> tuple[int, ...]:
    """The last dotted number of a version line: `g++ (Debian 12.2.0-14) 12.2.0` is 12.2.0."""
    found = _VERSION.findall(text)
    return tuple(int(part) for part in found[-1].split(".")) if found else ()
