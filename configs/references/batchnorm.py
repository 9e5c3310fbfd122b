"""Batch normalisation in training mode; writes its outputs in place, a few channels at a time to spare memory."""

import torch


def reference(x, gamma, beta, y, mean, var, N, C, H, W, eps):
    for first in range(0, C, 8):
        some = slice(first, first + 8)
        var[some], mean[some] = torch.var_mean(x[:, some], dim=(0, 2, 3), correction=0)
        scale = gamma[some] / torch.sqrt(var[some] + eps)
        shift = beta[some] - mean[some] * scale
        torch.addcmul(shift.view(1, -1, 1, 1), x[:, some], scale.view(1, -1, 1, 1), out=y[:, some])
