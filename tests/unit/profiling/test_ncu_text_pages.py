"""Text pages of Nsight Compute: what is left to whoever kept a log without `--csv`."""

from __future__ import annotations

import pytest

from profiling.ncu.pages import parse_pages
from profiling.ncu.summary import DURATION

DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"

TEXT_NEW = """==PROF== Connected to process 806 (/usr/bin/python3.12)
[806] python3.12@127.0.0.1
  gemm(const float *, float *, int) (128, 128, 1)x(16, 16, 1), Context 1, Stream 7, Device 0, CC 9.0
    Section: GPU Speed Of Light Throughput
    ----------------------- ----------- ------------
    Metric Name             Metric Unit Metric Value
    ----------------------- ----------- ------------
    DRAM Frequency                  Ghz         3.20
    Elapsed Cycles                cycle    6,206,661
    Memory Throughput                 %        98.57
    Compute (SM) Throughput           %        65.69
    Duration                         ms         3.14
    ----------------------- ----------- ------------

    OPT   Est. Local Speedup: 43.13%
          The memory access pattern for global loads might not be
          optimal.

    Section: Launch Statistics
    -------------------------------- --------------- ---------------
    Metric Name                          Metric Unit    Metric Value
    -------------------------------- --------------- ---------------
    Registers Per Thread             register/thread              32
    Function Cache Configuration                     CachePreferNone
    Waves Per SM                                               15.52
    -------------------------------- --------------- ---------------

  other(int) (1, 1, 1)x(32, 1, 1), Context 1, Stream 7, Device 0, CC 9.0
    Section: GPU Speed Of Light Throughput
    ----------------------- ----------- ------------
    Duration                         us         3.14
    ----------------------- ----------- ------------
"""
TEXT_OLD = """[7] app@127.0.0.1
  vec(float*, int), 2020-Nov-24 12:13:14, Context 1, Stream 7
    Section: GPU Speed Of Light
    ------------------------------------------------------------ --------------- ------------------------------
    Memory Frequency                                               cycle/usecond                         584.99
    Memory [%]                                                                 %                          91.78
    SOL FB                                                                     %                        (!) n/a
    Duration                                                             msecond                           2.86
    Elapsed Cycles                                                         cycle                      809887455
    ------------------------------------------------------------ --------------- ------------------------------
    WRN   This kernel grid is too small to fill the available resources on this device.
"""


def test_text_pages_of_both_dialects() -> None:
    """C08: a log without `--csv` is all that some people keep."""
    new = parse_pages(TEXT_NEW)
    gemm, other = new.launches
    assert (gemm.name, gemm.grid, gemm.block) == ("gemm(const float *, float *, int)", (128, 128, 1), (16, 16, 1))
    assert gemm.metrics[DURATION] == pytest.approx(3.14e-3)
    assert gemm.metrics["gpc__cycles_elapsed.max"] == 6206661
    assert gemm.metrics["launch__registers_per_thread"] == 32
    assert gemm.metrics["launch__waves_per_multiprocessor"] == 15.52
    assert gemm.metrics["sm__throughput.avg.pct_of_peak_sustained_elapsed"] == 65.69
    assert other.metrics == {DURATION: pytest.approx(3.14e-6)}
    (rule,) = new.rules
    assert (rule.kind, rule.speedup_kind, rule.speedup_percent) == ("OPT", "local", 43.13)
    assert rule.text == "The memory access pattern for global loads might not be optimal."
    (old,) = parse_pages(TEXT_OLD).launches
    assert old.metrics["dram__cycles_elapsed.avg.per_second"] == pytest.approx(584.99e6)
    assert old.metrics[DURATION] == pytest.approx(2.86e-3)
    assert old.metrics["gpc__cycles_elapsed.max"] == 809887455
    assert old.missing == (DRAM,)
    assert parse_pages(TEXT_OLD).rules[0].kind == "WRN"
