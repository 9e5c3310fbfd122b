"""What believing a number costs: one kernel evaluated with every safety layer on, and with none.

`.venv/bin/python benchmarks/evaluation_cost.py [TASK]` takes the name of a shipped task: `quickstart`, `gemm` on a GPU.

All on: `Harness.evaluate`, as in a run: workers behind walls, secret inputs at all shapes and distributions, guards,
poison, cold caches, two clocks, every timed call judged in float64. None: what a script commonly does: the library is
loaded into a process that has torch already, one call is compared with the reference in the kernel's own types, and as
many calls are timed on one buffer as the harness times. Both include what they must start anew for each candidate.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from agent.config import load_config
from agent.lab import Lab, open_lab
from agent.paths import find_config
from profiling.types import Scalar

REPEATS = 5
# Reads its arguments from standard input, one kernel a line; prints seconds a line.
BARE = r"""
import ctypes, importlib.util, json, sys, time
import torch
TYPES = {"int32": ctypes.c_int32, "uint32": ctypes.c_uint32, "int64": ctypes.c_int64, "uint64": ctypes.c_uint64,
         "float32": ctypes.c_float, "float64": ctypes.c_double, "bool": ctypes.c_bool}
task = json.loads(sys.stdin.readline())
spec = importlib.util.spec_from_file_location("reference", task["reference"])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
device = "cuda" if task["gpu"] else "cpu"
wait = torch.cuda.synchronize if task["gpu"] else (lambda: None)
torch.zeros(1, device=device)
print("ready", flush=True)
for line in sys.stdin:
    start = time.perf_counter()
    library = ctypes.CDLL(line.strip())
    named, words = {}, []
    for a in task["arguments"]:
        if a["shape"] is None:
            named[a["name"]] = a["value"]
            words.append(TYPES[a["dtype"]](a["value"]))
        else:
            named[a["name"]] = torch.randn(a["shape"], device=device).to(getattr(torch, a["dtype"]))
            words.append(ctypes.c_void_p(named[a["name"]].data_ptr()))
    library.solve(*words)
    wait()
    outputs = {n: named[n].clone() for n in task["outputs"]}
    returned = module.reference(**named)
    wait()
    expected = returned if isinstance(returned, torch.Tensor) else named[task["outputs"][0]]
    same = torch.allclose(outputs[task["outputs"][0]], expected.to(outputs[task["outputs"][0]].dtype), 1e-3, 1e-3)
    for _ in range(task["calls"]):
        began = time.perf_counter()
        library.solve(*words)
        wait()
    print(time.perf_counter() - start, same, flush=True)
"""


def bare_seconds(lab: Lab, artifact: Path, calls: int) -> list[float]:
    """Each repeat's time without any layer."""
    problem = lab.task.problem
    arguments = [
        {"name": a.name, "dtype": a.dtype, "shape": None, "value": a.value}
        if isinstance(a, Scalar)
        else {"name": a.name, "dtype": a.dtype, "shape": a.shape}
        for a in problem.timed.arguments
    ]
    task = {
        "reference": str(problem.reference),
        "gpu": problem.gpu is not None,
        "arguments": arguments,
        "outputs": [t.name for t in problem.timed.tensors if t.role != "in"],
        "calls": calls,
    }
    environment = {**os.environ, **lab.machine.worker_environment()}
    with subprocess.Popen(
        [sys.executable, "-c", BARE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(task) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        found = []
        for _ in range(REPEATS):
            process.stdin.write(f"{artifact}\n")
            process.stdin.flush()
            seconds, same = process.stdout.readline().split()
            assert same == "True", "the kernel is wrong"
            found.append(float(seconds))
        process.stdin.close()
    return found


def main() -> None:
    """Print both times and their ratio."""
    config = load_config(find_config(sys.argv[1] if len(sys.argv) > 1 else "quickstart"), ())
    with open_lab(config) as lab:
        built = lab.build_baseline()
        lab.check_task(built)
        full: list[float] = []
        calls, call_ms = 0, 0.0
        for _ in range(REPEATS):
            start = time.perf_counter()
            found = lab.harness.evaluate(built.artifact)
            full.append(time.perf_counter() - start)
            assert found.timing is not None, found.reason
            calls, call_ms = len(found.timing.samples_ms), found.timing.median_ms
        bare = bare_seconds(lab, built.artifact, calls)
    print(f"{config.task.name} on {lab.machine.name}, {calls} timed calls of {call_ms:.4g} ms:")
    for name, seconds in (("all layers on", full), ("none", bare)):
        print(f"  {name:14} {statistics.median(seconds):6.2f} s  ({min(seconds):.2f} to {max(seconds):.2f})")
    print(f"  ratio {statistics.median(full) / statistics.median(bare):.1f}")


if __name__ == "__main__":
    main()
