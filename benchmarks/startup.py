"""Time of `--help`, and what the controller itself costs in a run: CPU time, share of wall time, memory.

Run it from a checkout: `.venv/bin/python benchmarks/startup.py`. It plays the quickstart with its recorded answers in
a temporary folder. Times depend on the machine; compare shares, not seconds.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HELP_RUNS = 7
# Runs the command line in a process that reports its own resource usage, children left out.
WRAPPER = """
import json, resource, sys, time
from agent.cli import main
start = time.monotonic()
code = 0
try:
    main(sys.argv[2:], standalone_mode=False)
except SystemExit as end:
    code = end.code or 0
usage = resource.getrusage(resource.RUSAGE_SELF)
heavy = [m for m in ("torch", "triton", "numpy", "anthropic", "openai") if m in sys.modules]
json.dump({"code": code, "wall_s": time.monotonic() - start, "cpu_s": usage.ru_utime + usage.ru_stime,
           "max_rss_mib": usage.ru_maxrss / 1024, "heavy_modules": heavy}, open(sys.argv[1], "w"))
"""


def help_seconds() -> list[float]:
    """Wall seconds of `python -m agent --help`, fresh processes."""
    seconds = []
    for _ in range(HELP_RUNS):
        start = time.monotonic()
        subprocess.run([sys.executable, "-m", "agent", "--help"], check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.monotonic() - start)
    return seconds


def run_usage(arguments: list[str]) -> dict[str, object]:
    """Resource usage of the controller in one run."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "usage.json"
        subprocess.run(
            [sys.executable, "-c", WRAPPER, str(report), *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        usage: dict[str, object] = json.loads(report.read_text())
    return usage


def main() -> None:
    """Print one line per measurement."""
    seconds = help_seconds()
    print(f"--help: median {statistics.median(seconds):.3f} s of {HELP_RUNS} (least {min(seconds):.3f} s)")
    usage = run_usage(["run", "--config", "quickstart", *sys.argv[1:]])
    cpu, wall = float(str(usage["cpu_s"])), float(str(usage["wall_s"]))
    print(f"quickstart: {wall:.1f} s of wall time, controller {cpu:.2f} s of CPU ({100 * cpu / wall:.1f}%)")
    print(f"controller memory: {float(str(usage['max_rss_mib'])):.0f} MiB at most")
    heavy = usage["heavy_modules"]
    print(f"heavy modules in the controller: {', '.join(heavy) if isinstance(heavy, list) and heavy else 'none'}")


if __name__ == "__main__":
    main()
