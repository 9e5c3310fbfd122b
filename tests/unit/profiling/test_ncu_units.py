"""Numbers and units of Nsight Compute: one wrong prefix and a comparison of two kernels comes out reversed."""

from __future__ import annotations

import pytest

from profiling.ncu.units import base_unit, parse_number


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("152192", 152192.0),
        ("10,240,000", 1.024e7),
        ("809887455", 809887455.0),
        ("22,280,925,579,686.48", 22280925579686.48),
        ("4.0e-05", 4e-5),
        ("1E+3", 1000.0),
        ("-3.5", -3.5),
        (" 0 ", 0.0),
        ("15 (5; 10)", 15.0),
    ],
)
def test_numbers_are_read_as_printed(cell: str, value: float) -> None:
    assert parse_number(cell) == value


@pytest.mark.parametrize(
    "cell",
    ["", "n/a", "N/A", "(!) n/a", "nan", "-nan", "inf", "no data", "2024-Nov-13 18:14:36", "(256, 1, 1)", "all", ".",
     "PolicySpread", "1,5", "1,2345", "1_000", "1e"],
)  # fmt: skip
def test_what_is_no_number_is_missing_and_never_zero(cell: str) -> None:
    assert parse_number(cell) is None


@pytest.mark.parametrize(
    ("unit", "scale", "base"),
    [
        ("second", 1, "s"), ("s", 1, "s"), ("msecond", 1e-3, "s"), ("ms", 1e-3, "s"), ("usecond", 1e-6, "s"),
        ("us", 1e-6, "s"), ("nsecond", 1e-9, "s"), ("ns", 1e-9, "s"), ("sec", 1, "s"),
        ("byte", 1, "byte"), ("Kbyte", 1e3, "byte"), ("Mbyte", 1e6, "byte"), ("Gbyte", 1e9, "byte"),
        ("Tbyte", 1e12, "byte"), ("KB", 1e3, "byte"),
        ("byte/second", 1, "byte/s"), ("Gbyte/s", 1e9, "byte/s"), ("Tbyte/second", 1e12, "byte/s"),
        ("Kbyte/block", 1e3, "byte/block"), ("Kbyte/cycle", 1e3, "byte/cycle"),
        ("hz", 1, "hz"), ("Mhz", 1e6, "hz"), ("Ghz", 1e9, "hz"),
        ("cycle/second", 1, "hz"), ("cycle/usecond", 1e6, "hz"), ("cycle/nsecond", 1e9, "hz"),
        ("sector/ns", 1e9, "sector/s"), ("inst/cycle", 1, "inst/cycle"),
        ("register/thread", 1, "register/thread"), ("register/thr", 1, "register/thread"),
        ("%", 1, "%"), ("", 1, ""), ("inst", 1, "inst"), ("block", 1, "block"), ("warp", 1, "warp"), ("SM", 1, "SM"),
    ],
)  # fmt: skip
def test_both_dialects_of_units(unit: str, scale: float, base: str) -> None:
    factor, found = base_unit(unit)
    assert factor == pytest.approx(scale)
    assert found == base
