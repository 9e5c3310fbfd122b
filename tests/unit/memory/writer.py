"""Runs that use memory, as processes of their own: `python -m tests.unit.memory.writer URL RUN BATCHES SIZE`."""

from __future__ import annotations

import sys
from multiprocessing.synchronize import Barrier

from memory.store import Store
from tests.unit.memory.records import record


def main(url: str, run: str, batches: int, size: int) -> None:
    with Store(url) as store:
        for iteration in range(1, batches + 1):
            print(f"writing {iteration}", flush=True)
            store.add([record(f"m{at}", "simd", run=run, iteration=iteration) for at in range(size)])


def open_together(barrier: Barrier, urls: list[str], patience_s: float = 20) -> None:
    """Open each URL at the same moment as the other processes behind the barrier."""
    for url in urls:
        barrier.wait(timeout=patience_s)
        Store(url).close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
