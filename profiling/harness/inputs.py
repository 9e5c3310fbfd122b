"""Inputs that a candidate cannot foresee: cut from secret pools at secret places, scaled by secret factors.

Drawing fresh normal numbers for every timed call would take longer than most kernels. A pool of them is drawn once;
a call's tensor is a piece of it from a random element on, times a random factor, so no two calls see equal content.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from profiling.harness.arena import torch_dtype
from profiling.types import Case, TaskError, Tensor

Distribution = Literal["declared", "normal", "uniform", "heavy-tailed", "spike", "constant rows", "denormal"]
CHECKED: tuple[Distribution, ...] = get_args(Distribution)
_POOL = 1 << 21
_INTEGERS = 100
# Of nearly one size: how many small numbers a float32 sum loses beside a large one depends on it exponentially, in a
# softmax, and a kernel is held to the errors that the baseline made on other draws.
_SPIKE = (15.0, 16.0)
# Subnormal numbers lie in a stretch of at most this many elements: some processors take a hundred cycles over each.
_STRETCH = 4096
# Of the smallest normal number: not so small that its reciprocal overflows.
_SUBNORMAL = (0.26, 0.96)

Given = Callable[[int, Mapping[str, int]], Mapping[str, torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Draw:
    """One call's inputs, by what makes them again: they are never kept longer than needed."""

    seed: int
    distribution: Distribution


class InputMaker:
    """Makes the inputs of one case.

    Args:
        case: whose `in` and `inout` tensors are made.
        given: the reference's own `inputs`, or None.
        pools: the secret numbers.
    """

    def __init__(self, case: Case, given: Given | None, pools: Pools) -> None:
        self._case = case
        self._given = given
        self._pools = pools

    def make(self, draw: Draw) -> dict[str, torch.Tensor]:
        """The same draw makes the same inputs, shaped and in their types.

        Raises:
            TaskError: the reference's `inputs` does not deliver what the task says.
        """
        rng = random.Random(draw.seed)
        given = self._given(rng.getrandbits(31), self._case.dims) if self._given else {}
        made = {}
        for tensor in self._case.tensors:
            if tensor.name in given:
                made[tensor.name] = _fitting(tensor, given[tensor.name])
            elif tensor.role == "out":
                continue
            elif tensor.init == "reference":
                raise TaskError(
                    f"{tensor.name}: init is `reference`, but the reference's inputs() has no {tensor.name}"
                )
            else:
                made[tensor.name] = self._filled(tensor, draw.distribution, rng)
        return made

    def _filled(self, tensor: Tensor, distribution: Distribution, rng: random.Random) -> torch.Tensor:
        dtype = torch_dtype(tensor.dtype)
        if tensor.init == "zeros":
            return torch.zeros(tensor.shape, dtype=dtype)
        if tensor.init == "ones":
            return torch.ones(tensor.shape, dtype=dtype)
        if not dtype.is_floating_point:
            return _integers(self._pools.uniform(tensor.elements, rng), dtype).view(tensor.shape)
        # A tensor declared uniform is non-negative in every distribution: kernels may take its root or logarithm.
        non_negative = tensor.init == "uniform"
        kind = tensor.init if distribution == "declared" else distribution
        values = self._values(tensor, kind, rng)
        made = (values.abs_() if non_negative else values).to(dtype)
        if kind == "denormal":
            self._make_subnormal(made, rng)
        return made.view(tensor.shape)

    def _values(self, tensor: Tensor, kind: str, rng: random.Random) -> torch.Tensor:
        n = tensor.elements
        if kind == "uniform":
            return self._pools.uniform(n, rng)
        values = self._pools.normal(n, rng)
        if kind == "heavy-tailed":
            return values.pow_(3)
        if kind == "spike":
            values.mul_(0.01)
            if n:
                values[rng.randrange(n)] = rng.choice((-1.0, 1.0)) * rng.uniform(*_SPIKE)
        if kind == "constant rows" and len(tensor.shape) > 1 and n:
            # Of one sign: sums of few different numbers that cancel would show how lucky a kernel is, not how exact.
            rows = values.abs_().view(-1, tensor.shape[-1])
            rows.copy_(rows[:, :1].clone().expand_as(rows))
        return values

    def _make_subnormal(self, flat: torch.Tensor, rng: random.Random) -> None:
        """About half of a stretch of the numbers become subnormal in their own type, and keep their signs."""
        n = min(flat.numel(), _STRETCH)
        start = rng.randrange(flat.numel() - n + 1)
        stretch = flat[start : start + n]
        wide = stretch.to(torch.float64)
        low, high = _SUBNORMAL
        sizes = (low + (high - low) * self._pools.uniform(n, rng).to(torch.float64)) * torch.finfo(
            flat.dtype
        ).smallest_normal
        tiny = torch.where(wide < 0, -sizes, sizes)
        stretch.copy_(torch.where(self._pools.uniform(n, rng) > 0.45, tiny, wide))


class Pools:
    """Secret normal and uniform numbers, drawn once."""

    def __init__(self, rng: random.Random) -> None:
        generator = torch.Generator(torch.get_default_device()).manual_seed(rng.getrandbits(63))
        self._normal = torch.randn(_POOL, generator=generator)
        self._uniform = torch.rand(_POOL, generator=generator)

    def normal(self, n: int, rng: random.Random) -> torch.Tensor:
        """`n` float64-scaled normal numbers (deviation 0.8 to 1.25) as float32."""
        return _cut(self._normal, n, rng, lambda: rng.choice((-1.0, 1.0)) * rng.uniform(0.8, 1.25))

    def uniform(self, n: int, rng: random.Random) -> torch.Tensor:
        """`n` numbers from 0 to at most 1."""
        return _cut(self._uniform, n, rng, lambda: rng.uniform(0.8, 1.0))


def _cut(pool: torch.Tensor, n: int, rng: random.Random, factor: Callable[[], float]) -> torch.Tensor:
    result = torch.empty(n)
    at = 0
    while at < n:
        m = min(n - at, _POOL // 2)
        start = rng.randrange(_POOL - m + 1)
        torch.mul(pool[start : start + m], factor(), out=result[at : at + m])
        at += m
    return result


def _integers(uniform: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Whole numbers from -100 (0 for unsigned types) to 99; bools evenly."""
    if dtype == torch.bool:
        return uniform > 0.45
    low = -_INTEGERS if dtype.is_signed else 0
    return (uniform * (_INTEGERS - low) / 0.9 + low).floor_().clamp_(low, _INTEGERS - 1).to(torch.int64).to(dtype)


def _fitting(tensor: Tensor, value: object) -> torch.Tensor:
    try:
        made = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TaskError(f"inputs(): {tensor.name} is no array: {error}") from error
    if made.numel() != tensor.elements:
        raise TaskError(f"inputs(): {tensor.name} has shape {list(made.shape)}, the task says {list(tensor.shape)}")
    return made.detach().to(torch.get_default_device(), torch_dtype(tensor.dtype)).contiguous().view(tensor.shape)
