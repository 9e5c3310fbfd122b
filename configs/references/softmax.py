"""Row softmax; returns its result."""

import torch


def reference(x, y, rows, cols):
    return torch.softmax(x, dim=1)
