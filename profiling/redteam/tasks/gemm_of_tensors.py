"""c = a @ b."""

import torch


def reference(a, b, c, M, N, K):
    torch.matmul(a, b, out=c)
