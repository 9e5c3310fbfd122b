"""What the walls around builds cost: a trivial C++ kernel compiled with and without them, one after the other.

Run it from a checkout: `.venv/bin/python benchmarks/build_walls.py`. Times depend on the machine; compare the two.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from backends.host_compiler import compiler_folders, find_compiler
from backends.process import run_process
from backends.walls import Walls, layers

RUNS = 20
SOURCE = 'extern "C" void solve(float* b) { b[0] = 1; }\n'


def seconds(argv: list[str], work: Path, walls: Walls | None) -> float:
    start = time.perf_counter()
    done = run_process(argv, timeout_s=60.0, cwd=work, env={"TMPDIR": str(work)}, walls=walls)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return time.perf_counter() - start


def main() -> None:
    """Print the medians and their difference."""
    compiler = find_compiler()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "kernel.cpp").write_text(SOURCE, encoding="utf-8")
        argv = [*compiler.argv, "-shared", "-fPIC", "-o", "kernel.so", "kernel.cpp"]
        walls = Walls(writable=(work,), tools=compiler_folders(compiler.argv))
        pairs = [(seconds(argv, work, None), seconds(argv, work, walls)) for _ in range(RUNS)]
    free, walled = (statistics.median(times) * 1e3 for times in zip(*pairs, strict=True))
    print(f"layers: {', '.join(name for name, stands in layers().items() if stands) or 'none'}")
    print(f"median of {RUNS}: {free:.1f} ms without walls, {walled:.1f} ms behind them, {walled - free:+.1f} ms")


if __name__ == "__main__":
    main()
