import torch

def solve(a, b, n):
    b.copy_(a)
