"""Which argument lies where, as a runner says before a call with tensors apart: reports then name them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_LINE = re.compile(r"^argument (\d+) at (0x[0-9a-f]+)$", re.MULTILINE)


def buffer_names(output: str, names: Sequence[str]) -> Mapping[int, str]:
    """Addresses to names. Only the first that is said of an argument counts: the kernel prints after the runner."""
    found: dict[int, int] = {}
    for number, address in _LINE.findall(output):
        found.setdefault(int(number), int(address, 16))
    return {address: names[number] for number, address in found.items() if number < len(names)}
