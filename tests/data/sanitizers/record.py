"""Records what compute-sanitizer's four tools say of the kernels in this folder, and prints all of it.

On a machine with an NVIDIA GPU, nvcc and compute-sanitizer, with the options that runs use:

    python3 tests/data/sanitizers/record.py FOLDER

FOLDER gets `<kernel>.<tool>.log` (the tool's log), `<kernel>.<tool>.out` (what the program printed, its exit code in
the last line) and `versions.txt`. To use them in tests, copy logs and outputs into this folder.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from profiling.gpu_tools import find_gpu_tool  # noqa: E402
from profiling.sanitizers.findings import GPU_TOOLS  # noqa: E402
from profiling.sanitizers.gpu import sanitizer_command  # noqa: E402


def said(argv: list[str]) -> str:
    """What a program prints, and how it ended."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    return f"{done.stdout}{done.stderr}exit {done.returncode}\n"


def main() -> None:
    """Record into the folder that the command line names."""
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    nvcc, sanitizer = find_gpu_tool("nvcc"), find_gpu_tool("compute-sanitizer")
    if nvcc is None or sanitizer is None:
        raise SystemExit("nvcc or compute-sanitizer is not installed")
    versions = said([str(sanitizer), "--version"]) + said([str(nvcc), "--version"]) + said(["nvidia-smi", "-L"])
    (target / "versions.txt").write_text(versions)
    print(versions + said([str(sanitizer), "--help"]))
    for source in sorted(HERE.glob("*.cu")):
        program = target / source.stem
        print(said([str(nvcc), "-O3", "-lineinfo", "-arch=native", str(source), "-o", str(program)]))
        for number, tool in enumerate(GPU_TOOLS):
            log = target / f"{source.stem}.{tool}.log"
            start = time.monotonic()
            printed = said([*sanitizer_command(sanitizer, tool, log, number), str(program)])
            (target / f"{source.stem}.{tool}.out").write_text(printed)
            text = log.read_text() if log.exists() else "no log\n"
            print(f"##### {source.stem} {tool}, {time.monotonic() - start:.1f} s\n{printed}{text}")


if __name__ == "__main__":
    main()
