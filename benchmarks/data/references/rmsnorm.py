"""Root-mean-square normalisation over the last dim; returns its result."""

from typing import Any

import torch


def reference(x: Any, weight: Any, y: Any, rows: int, cols: int) -> Any:
    return x / torch.sqrt(x.square().mean(dim=1, keepdim=True) + 1e-5) * weight
