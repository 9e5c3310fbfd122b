"""C = A @ B."""

import torch


def reference(A, B, C, M, N, K):
    torch.matmul(A, B, out=C)
