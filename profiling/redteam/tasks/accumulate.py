"""y += x."""


def reference(x, y, n):
    y.add_(x)
