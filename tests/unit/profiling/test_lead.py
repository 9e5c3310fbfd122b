"""Our own kernels around a timed call, without a GPU: their PTX is interpreted, and the driver a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from profiling.harness.triton_launcher import build_library
from tests.unit.profiling.gpu_driver import needs_compiler
from tests.unit.profiling.ptx import Gpu
from tests.unit.profiling.test_launcher import GPU, build_driver

SOURCE = Path(__file__).parents[3] / "profiling" / "native" / "gpu_kernels.h"
BUFFER, CHUNKS, ARRIVED, SPAN, TABLE = 0x100000, 64, 0x500000, 0x100050, 0x600000
OUTPUTS = ((0x700000, 1), (0x710003, 100), (0x720000, 4096))
GRID, BLOCK = 3, 128
NEVER = (1 << 64) - 1
CHILD = """
import ctypes, sys
from pathlib import Path
from profiling.harness.triton_native import Native
native = Native(Path(sys.argv[1]))
memory = native.stage(sys.argv[2], bytes(400))
found = []
def solve():
    found.append([i for i, byte in enumerate(ctypes.string_at(memory, 400)) if byte])
written = [[(memory, 100)], [(memory + 200, 150)]]
for together in (False, True):
    print([t.synced for t in native.timed([solve, solve], 20, True, written, together=together)], found)
    found.clear()
    ctypes.memset(memory, 0, 400)
"""


def ptx() -> str:
    text = SOURCE.read_text()
    return text[text.index('R"(') + 3 : text.index(')";')]


@pytest.mark.parametrize("counted", [0, (1 << 32) - 2 * GRID, (1 << 32) - GRID])
@pytest.mark.parametrize("passes", [0, 2])
def test_the_lead_leaves_its_end_before_any_block_ends_and_spoils_every_output(counted: int, passes: int) -> None:
    """A store beside an output would fail honest kernels, and a late start of the clock would flatter all."""
    gpu = Gpu()
    for place, (address, size) in enumerate(OUTPUTS):
        gpu.store(TABLE + 16 * place, address, 8)
        gpu.store(TABLE + 16 * place + 8, size, 8)
    gpu.store(ARRIVED, counted, 4)
    for seed in range(2):
        gpu.store(SPAN, NEVER, 8)
        before = dict(gpu.memory)
        counted = counted + GRID & (1 << 32) - 1
        arguments = (BUFFER, CHUNKS, 100, passes, ARRIVED, counted, SPAN, TABLE, len(OUTPUTS), 12345 + seed)
        ended = gpu.launch(ptx(), "lead", arguments, GRID, BLOCK, seed)
        assert 1000 < gpu.load(SPAN, 8) <= min(ended.values())
        assert gpu.load(ARRIVED, 4) == counted
        changed = {address for address, byte in gpu.memory.items() if before.get(address, 0) != byte}
        for address, size in OUTPUTS:
            written = changed & set(range(address, address + size))
            assert len(written) >= min(size, 30) or size == 1
            changed -= written
        assert changed <= {*range(ARRIVED, ARRIVED + 4), *range(SPAN, SPAN + 8)}


def test_the_stamp_leaves_the_time() -> None:
    gpu = Gpu()
    gpu.launch(ptx(), "stamp", (SPAN + 8,), 1, 1, 0)
    assert gpu.memory.keys() == set(range(SPAN + 8, SPAN + 16))
    assert gpu.load(SPAN + 8, 8) == gpu.timer_ns


@needs_compiler
def test_a_triton_worker_hands_over_what_its_calls_are_to_write(tmp_path: Path) -> None:
    build_driver(tmp_path)
    library = build_library(tmp_path / "cache")
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(library), GPU],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    alone, together = "[12345, 12345] [[99], [99, 349]]", "[12345] [[99, 349], [99, 349]]"
    assert done.stdout.splitlines() == [alone, together], done.stderr
