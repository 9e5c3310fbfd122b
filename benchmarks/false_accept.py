"""How often noise is taken for a gain: a kernel against itself, against one 5% slower and against one 5% faster.

`.venv/bin/python benchmarks/false_accept.py --backend cuda` (or `cuda-short`, `cpp`). Every comparison and every
decision is made as in a run with default settings: `Harness.compare` between fresh workers, then `accepts` with the
larger of `search.noise` and the A/A spread, which is measured anew before every 25 comparisons, as for a run of that
length.

The three kernels give the same right answer and differ in how long a loop they turn besides. How much that is in time
is measured, too: the table's `measured` is the median ratio of times over all comparisons.

`--busy` keeps the cores that workers are not pinned to copying memory meanwhile, `--busy N` the last N of them. `--log
FILE` keeps each comparison as a line of JSON; with a log that is there already the count goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent.config import load_config
from agent.machine import find_machine, say_warning
from agent.paths import cache_folder
from agent.stages.champion import accepts
from agent.task import on_machine, open_harness, prepare_task
from backends.types import Rejected
from profiling.device import pinned_cores
from profiling.harness.harness import Harness

HEAD = 'extern "C" void solve(const float* x, float* y, int n)'
CPP = f"""
{HEAD} {{
    float work = x[0];
    for (int turn = 0; turn < TURNS; turn++) {{
        work = work * 0.5f + 1.0f;
        asm volatile("" : "+x"(work));
    }}
    for (int i = 0; i < n; i++) y[i] = 2.0f * x[i] + 1.0f;
}}
"""
CUDA = f"""
__global__ void kernel(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float work = x[i];
    for (int turn = 0; turn < TURNS; turn++) work = work * 0.5f + 1.0f;
    y[i] = work == -1.0f ? 0.0f : 2.0f * x[i] + 1.0f;  // it never is, but no compiler knows
}}
{HEAD} {{ kernel<<<(n + 255) / 256, 256>>>(x, y, n); }}
"""
REFERENCE = "def reference(x, y, n):\n    y.copy_(2 * x + 1)\n"
# Source, suffix, elements, turns: a call of about 0.2 ms on a core, of about 0.1 ms on an H200; and one of about 12 us
# there, which is compared in batches, and whose time follows its turns by two thirds.
BACKENDS = {
    "cpp": (CPP, ".cpp", 4096, 80_000),
    "cuda": (CUDA, ".cu", 1 << 20, 3000),
    "cuda-short": (CUDA, ".cu", 4096, 4000),
}
# Of the turns of `itself`; times differ a little less, since a call is not turns alone.
TURNS = {"itself": 1.0, "slower": 1.05, "faster": 1 / 1.05}
SPREAD_FOR = 25
COPIES = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
block = bytearray(64 << 20)
while os.getppid() == int(sys.argv[2]):
    copy = block[:]
"""


def prepare(folder: Path, backend: str, kind: str) -> Path:
    """The kernel's source."""
    text, suffix, _, turns = BACKENDS[backend]
    path = folder / f"{kind}{suffix}"
    path.write_text(text.replace("TURNS", str(round(turns * TURNS[kind]))))
    return path


def write_task(folder: Path, backend: str) -> Path:
    """The task of the kernel `itself`, everything else by default."""
    (folder / "reference.py").write_text(REFERENCE)
    config = {
        "task": {
            "name": "false_accept",
            "backend": backend.partition("-")[0],
            "baseline": prepare(folder, backend, "itself").name,
            "reference": "reference.py",
            "dims": {"n": BACKENDS[backend][2]},
            "tensors": {"x": {"shape": ["n"]}, "y": {"shape": ["n"]}},
        }
    }
    path = folder / "task.yaml"
    path.write_text(json.dumps(config))
    return path


@contextmanager
def neighbours(busy: bool | int) -> Iterator[None]:
    """Processes that copy memory on every core that workers are not pinned to, or on the last so many of them."""
    cores = sorted(os.sched_getaffinity(0) - set(pinned_cores(1))) if busy else []
    cores = cores if busy is True else cores[-busy:]
    running = [subprocess.Popen([sys.executable, "-c", COPIES, str(core), str(os.getpid())]) for core in cores]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def comparisons(
    harness: Harness, artifacts: dict[str, Path], wanted: Sequence[str], noise: float
) -> Iterator[dict[str, Any]]:
    """Compare `itself` with each of the wanted kernels, and decide."""
    smallest = noise
    for number, kind in enumerate(wanted):
        if number % SPREAD_FOR == 0:
            spread = harness.aa_spread(artifacts["itself"])
            if isinstance(spread, Rejected):
                raise SystemExit(f"the A/A spread cannot be measured here: {spread.reason}")
            smallest = max(noise, spread)
        start = time.monotonic()
        found = harness.compare(artifacts["itself"], artifacts[kind])
        row: dict[str, Any] = {"kind": kind, "accepted": accepts(found, smallest)[0], "smallest_gain": smallest}
        row["seconds"] = round(time.monotonic() - start, 3)
        if isinstance(found, Rejected):
            yield {**row, "void": found.reason}
        else:
            yield {**row, "speedup": found.speedup, "low": found.low, "high": found.high, "a_ms": found.a_ms}


def order(count: int, others: int, done: Sequence[dict[str, Any]]) -> list[str]:
    """What is left to compare, the kinds mixed evenly, so that a log that was cut off holds all of them."""
    wanted = {"itself": count, "slower": others, "faster": others}
    left = {kind: n - sum(row["kind"] == kind for row in done) for kind, n in wanted.items()}
    places = [((i + 0.5) / n, kind) for kind, n in left.items() for i in range(n)]
    return [kind for _, kind in sorted(places)]


def read_log(path: Path | None) -> list[dict[str, Any]]:
    """The comparisons that were made before."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []


def upper_bound(accepted: int, count: int, level: float = 0.95) -> float:
    """One-sided Clopper-Pearson bound: with a larger share, so few would be seen less than once in twenty times."""
    if accepted >= count:
        return 1.0

    def at_most(share: float) -> float:
        return sum(math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(accepted + 1))

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if at_most(middle) > 1 - level else (low, middle)
    return high


def table(rows: Sequence[dict[str, Any]]) -> str:
    """What came out, kind by kind."""
    lines = [
        "| against | comparisons | accepted | share, 95% bound | void | measured | interval's lower end, highest |"
    ]
    lines += ["|---|---|---|---|---|---|---|"]
    for kind in TURNS:
        mine = [row for row in rows if row["kind"] == kind]
        made = [row for row in mine if "speedup" in row]
        if not made:
            continue
        accepted = sum(row["accepted"] for row in mine)
        bound = f"at most {upper_bound(accepted, len(mine)):.2%}"
        if kind == "faster":
            bound = f"at least {1 - upper_bound(len(mine) - accepted, len(mine)):.1%}"
        ratio = statistics.median(row["speedup"] for row in made)
        highest = max(row["low"] for row in made)
        void = len(mine) - len(made)
        lines.append(f"| {kind} | {len(mine)} | {accepted} | {bound} | {void} | {ratio:.4f}x | {highest:.4f} |")
    gains = [row["smallest_gain"] for row in rows]
    times = [row["a_ms"] for row in rows if "a_ms" in row]
    lines.append(
        f"\nleast gain that counts: median {statistics.median(gains):.2%}, highest {max(gains):.2%}; "
        f"one call {statistics.median(times):.4f} ms; "
        f"one comparison {statistics.median(row['seconds'] for row in rows):.2f} s"
        if times
        else "\nno comparison came to numbers"
    )
    return "\n".join(lines)


def failures(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What must not be."""
    share = {kind: [row["accepted"] for row in rows if row["kind"] == kind] for kind in TURNS}
    wrong = [f"{sum(share[kind])} accepted against {kind}" for kind in ("itself", "slower") if any(share[kind])]
    if share["faster"] and sum(share["faster"]) < 0.9 * len(share["faster"]):
        wrong.append(f"{sum(share['faster'])} of {len(share['faster'])} faster ones accepted")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", choices=BACKENDS, default="cpp")
    parser.add_argument("--count", type=int, default=300, help="comparisons of the kernel with itself")
    parser.add_argument("--others", type=int, help="with the slower and with the faster one each; a tenth of --count")
    parser.add_argument(
        "--busy", type=int, nargs="?", const=True, default=False, help="keep other cores, or N of them, copying memory"
    )
    parser.add_argument("--log", type=Path, help="a file that keeps each comparison, and from which to go on")
    given = parser.parse_args()
    others = given.others if given.others is not None else given.count // 10
    setting = {"backend": given.backend, "busy": given.busy}
    rows = [row for row in read_log(given.log) if row.items() >= setting.items()]
    wanted = order(given.count, others, rows)
    with tempfile.TemporaryDirectory(prefix="roofclimb-benchmark-") as scratch:
        folder = Path(scratch)
        config = load_config(write_task(folder, given.backend))
        task = prepare_task(config)
        machine = find_machine(config, task.backend, say_warning)
        task = on_machine(task, machine)
        artifacts = {}
        for kind in TURNS:
            built = task.backend.build(prepare(folder, given.backend, kind), task.spec, folder / "builds")
            if isinstance(built, Rejected):
                raise SystemExit(f"{kind} does not build: {built.reason}")
            artifacts[kind] = built.artifact
        others_do = "copy memory" if given.busy else "are left alone"
        print(f"{given.backend} on {machine.name}; other cores {others_do}", file=sys.stderr)
        with neighbours(given.busy), open_harness(task, machine, cache_folder()) as harness:
            harness.check_task(artifacts["itself"])
            for found in comparisons(harness, artifacts, wanted, config.search.noise):
                row = {**setting, **found}
                rows.append(row)
                if given.log:
                    with given.log.open("a") as log:
                        log.write(json.dumps(row) + "\n")
                if len(rows) % 20 == 0:
                    accepted = {kind: sum(r["accepted"] for r in rows if r["kind"] == kind) for kind in TURNS}
                    print(f"{len(rows)} compared, accepted: {accepted}", file=sys.stderr, flush=True)
    print(table(rows))
    wrong = failures(rows)
    print(f"NOT AS IT MUST BE: {'; '.join(wrong)}" if wrong else "as it must be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
