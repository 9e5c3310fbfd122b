"""By-value arguments: what each C type can hold, and the bytes that hold it. Nothing is cut silently."""

from __future__ import annotations

import math
from collections.abc import Mapping

from profiling.types import Scalar

INTEGER_RANGES: Mapping[str, tuple[int, int]] = {
    f"{prefix}int{bits}": ((0, 2**bits - 1) if prefix else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    for prefix in ("", "u")
    for bits in (8, 16, 32, 64)
}
# Exponent bits, mantissa bits, largest finite value. e4m3 is the variant without infinities (OCP FP8).
_FLOATS: Mapping[str, tuple[int, int, float]] = {
    "float64": (11, 52, 1.7976931348623157e308),
    "float32": (8, 23, 3.4028234663852886e38),
    "float16": (5, 10, 65504.0),
    "bfloat16": (8, 7, 3.3895313892515355e38),
    "float8_e4m3": (4, 3, 448.0),
    "float8_e5m2": (5, 2, 57344.0),
}


def fitted(value: float | bool, dtype: str) -> int | float | bool:
    """`value` as a parameter of element type `dtype` holds it.

    Fractions are rounded to the type, so that a reference sees what the kernel sees. A whole number that a floating
    type cannot hold is an error, as is a number that becomes zero.

    Raises:
        ValueError: the type cannot hold it; the message says why.
    """
    if dtype == "bool":
        if value not in (0, 1):
            raise ValueError(f"{value} is not a bool; give true or false")
        return bool(value)
    if dtype in INTEGER_RANGES:
        low, high = INTEGER_RANGES[dtype]
        if isinstance(value, float) and not value.is_integer():
            raise ValueError(f"{value} is not a whole number")
        if not low <= value <= high:
            raise ValueError(f"{_short(value)} does not fit; it holds {low} to {high}")
        return int(value)
    largest = _FLOATS[dtype][2]
    held = _rounded(value, dtype)
    if held is None or abs(held) > largest:
        raise ValueError(f"{_short(value)} does not fit; it holds {-largest:.6g} to {largest:.6g}")
    if held == 0 and value != 0:
        raise ValueError(f"{value} is so small that it becomes zero")
    if isinstance(value, int) and held != value:
        raise ValueError(f"{value} cannot be held exactly; it becomes {held:.0f}")
    return held


def scalar_word(scalar: Scalar) -> int:
    """The bits of a by-value argument in the low end of an 8-byte word; negative integers are sign-extended."""
    if scalar.dtype not in _FLOATS:
        return int(scalar.value) & 0xFFFF_FFFF_FFFF_FFFF
    exponent_bits, mantissa_bits, _ = _FLOATS[scalar.dtype]
    value = float(scalar.value)
    exponent, steps = _steps(value, scalar.dtype)
    # Subnormals share the lowest exponent with the smallest normal numbers, whose hidden bit is one step more.
    field = exponent + (1 << (exponent_bits - 1)) - 2
    bits = (field << mantissa_bits) + steps
    return bits | ((math.copysign(1, value) < 0) << (exponent_bits + mantissa_bits))


def _rounded(value: float, dtype: str) -> float | None:
    """The nearest number of the type if its exponents had no upper end, None past float64 and for what is no number."""
    try:
        if not math.isfinite(value):
            return None
        exponent, steps = _steps(float(value), dtype)
        return math.copysign(math.ldexp(steps, exponent - _FLOATS[dtype][1]), value)
    except OverflowError:
        return None


def _steps(value: float, dtype: str) -> tuple[int, int]:
    """Exponent of the value's binade in the type, and |value| in units of its last place, half to even."""
    exponent_bits, mantissa_bits, _ = _FLOATS[dtype]
    lowest = 2 - (1 << (exponent_bits - 1))
    exponent = max(math.frexp(value)[1] - 1, lowest) if value else lowest
    return exponent, round(math.ldexp(abs(value), mantissa_bits - exponent))


def _short(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
