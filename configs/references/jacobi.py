"""One Jacobi step of the five-point stencil, the border kept; returns its result."""

from typing import Any


def reference(x: Any, y: Any, rows: int, cols: int) -> Any:
    out = x.clone()
    if rows > 2 and cols > 2:
        around = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
        out[1:-1, 1:-1] = (around + x[1:-1, 1:-1]) / 5
    return out
