"""Layer normalisation over the last dim; returns its result."""

import torch


def reference(x, weight, bias, y, rows, cols, eps):
    return torch.nn.functional.layer_norm(x, (cols,), weight, bias, eps)
