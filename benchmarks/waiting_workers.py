"""Whether workers that wait for a candidate, their CUDA contexts open, change the times of a kernel beside them.

`.venv/bin/python benchmarks/waiting_workers.py` on a machine with a GPU. A run opens the contexts of what it compares
next while it builds, so branches are timed beside up to 18 of them. Here twenty are opened and one kernel is evaluated
again and again; each evaluation takes two of them, so that the first is timed beside 18 and the last beside none. What
counts is the ratio of the medians of those beside many and of those beside few, and how far single ones lie apart.
`--backend` is `cuda` (0.1 ms on an H200) or `cuda-short` (12 us), both by default; `--rounds N` (default 4).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from false_accept import write_task

from agent.config import load_config
from agent.lab import open_lab

WAITING = 20
OF_ONE = 2  # one is checked, one is timed


def medians(backend: str, rounds: int, folder: Path) -> dict[int, list[float]]:
    """Milliseconds, by how many workers waited beside the one that was timed."""
    found: dict[int, list[float]] = {}
    with open_lab(load_config(write_task(folder, backend))) as lab:
        built = lab.build_baseline()
        lab.check_task(built)
        for _ in range(rounds):
            lab.harness.prepare(WAITING)
            for waiting in range(WAITING - OF_ONE, -1, -OF_ONE):
                evaluation = lab.harness.evaluate(built.artifact)
                if evaluation.timing is None:
                    raise SystemExit(f"the kernel cannot be timed: {evaluation.reason}")
                found.setdefault(waiting, []).append(evaluation.timing.median_ms)
    return found


def report(backend: str, found: dict[int, list[float]]) -> None:
    """Each number of waiting workers, and many against few."""
    print(f"{backend}, median of a call in us, by the number of workers that wait beside it:")
    for waiting, times in sorted(found.items()):
        print(f"  {waiting:2}  {statistics.median(times) * 1e3:8.2f}  ({_range(times)})")
    few, many = ([t for waiting, times in found.items() if side(waiting) for t in times] for side in (_few, _many))
    ratio = statistics.median(many) / statistics.median(few)
    print(f"  14 to 18 over 0 to 4: {ratio:.4f}  (single ones: {_range(many)} and {_range(few)})", flush=True)


def _few(waiting: int) -> bool:
    return waiting <= 4


def _many(waiting: int) -> bool:
    return waiting >= 14


def _range(times: Sequence[float]) -> str:
    return f"{min(times) * 1e3:.2f} to {max(times) * 1e3:.2f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("cuda", "cuda-short"))
    parser.add_argument("--rounds", type=int, default=4)
    given = parser.parse_args()
    for backend in [given.backend] if given.backend else ["cuda", "cuda-short"]:
        with tempfile.TemporaryDirectory(prefix="roofclimb-") as folder:
            report(backend, medians(backend, given.rounds, Path(folder)))


if __name__ == "__main__":
    main()
