"""Layer normalisation over the last dim; returns its result."""

from typing import Any

import torch


def reference(x: Any, weight: Any, bias: Any, y: Any, rows: int, cols: int) -> Any:
    return torch.nn.functional.layer_norm(x, (cols,), weight, bias, 1e-5)
