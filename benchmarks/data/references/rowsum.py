"""The sum of squares of each row; returns its result."""

from typing import Any


def reference(x: Any, y: Any, rows: int, cols: int) -> Any:
    return x.square().sum(dim=1)
