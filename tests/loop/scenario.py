"""A small real task (matrix-vector product by columns, walked by rows), and answers written for it by hand.

The answers are synthetic: they drive the loop where a test wants it. Builds, timings and disassembly are real.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.artefacts import plain
from agent.llm.recording import RecordedReply, Recording, write_recording
from agent.plan import PlanRules
from agent.state import State
from memory.types import Recall
from profiling.findings import Metric, Profile

BASELINE = """
extern "C" void solve(const float* A, const float* x, float* y, int N) {
    for (int i = 0; i < N; ++i) {
        float sum = 0.0f;
        for (int j = 0; j < N; ++j) sum += A[j * N + i] * x[j];
        y[i] = sum;
    }
}
"""
REFERENCE = "def reference(A, x, y, N):\n    y.copy_(A.T @ x)\n"
METHOD = "memory.loop_interchange"
SWITCH = "RC_LOOP_INTERCHANGE"


def kernel(block: int = 1, switch: bool = True, comment: str = "") -> str:
    """The product with unit stride, `block` rows at a time; behind its switch unless told otherwise."""
    fast = f"""
    for (int i = 0; i < N; ++i) y[i] = 0.0f;
    int j = 0;
    for (; j + {block} <= N; j += {block})
        for (int i = 0; i < N; ++i)
            y[i] += {" + ".join(f"A[(j + {b}) * N + i] * x[j + {b}]" for b in range(block))};
    for (; j < N; ++j)
        for (int i = 0; i < N; ++i) y[i] += A[j * N + i] * x[j];
"""
    slow = BASELINE[BASELINE.index("{") + 1 : BASELINE.rindex("}")]
    body = f"#if {SWITCH}{fast}#else{slow}#endif\n" if switch else fast
    guard = f"#ifndef {SWITCH}\n#define {SWITCH} 1\n#endif\n" if switch else ""
    arguments = "const float* __restrict__ A, const float* __restrict__ x, float* __restrict__ y, int N"
    head = f'extern "C" void solve({arguments}) {{\n'
    return f"// {comment or block}\n{guard}{head}{body}}}\n"


def fenced(source: str) -> str:
    """A kernel as a model answers it."""
    return f"```cpp\n{source}```\n"


HEAD = 'extern "C" void solve(const float* A, const float* x, float* y, int N)'
WRONG = f"{HEAD} {{ for (int i = 0; i < N; ++i) y[i] = x[i]; }}\n"
BROKEN = f"{HEAD} {{ return 1 }}\n"


def plan(branches: int, *also: str, value: float = 0.5, **parameters: object) -> str:
    """A plan of the scenario's method, and of others, that quotes the scenario's metric."""
    methods = [
        {
            "id": method,
            "axis": method.partition(".")[0],
            "why": "columns are walked with a stride",
            "triggers": [{"metric": "l1_miss_rate", "value": value}],
            "trigger_strength": 0.9,
            "parameters": parameters if method == METHOD else {},
        }
        for method in (METHOD, *also)
    ]
    return json.dumps(
        {
            "analysis": {"metrics": "m", "reasoning": "r", "risks": "k"},
            "methods": methods,
            "branches": [{"name": f"b{i}", "variant": f"{i + 1} rows at a time"} for i in range(branches)],
        }
    )


def rules(branches: int, recall: Recall | None = None) -> PlanRules:
    """What the recorded plans were held to."""
    metric = Metric("l1_miss_rate", 0.5, "ratio", "memory", "low", 0.5, "misses")
    return PlanRules(
        backend="cpp",
        arch="x86_64",
        features=("avx2", "fma"),
        methods=3,
        axis_budget={"compute": 2, "memory": 2, "latency": 2},
        branches=branches,
        profile=Profile("cachegrind", "full", (metric,), ""),
        recall=recall or Recall(),
        policy="advisory",
    )


def record(folder: Path, answers: Mapping[str, str], branches: int = 2) -> None:
    """Write the answers as recordings, keyed by step name."""
    for step, text in answers.items():
        context: dict[str, Any] = {"rules": plain(rules(branches))} if "-plan-" in step else {}
        reply = RecordedReply(text=text, model="by-hand", stop="end")
        recording = Recording(step=step, prompt_sha256="0" * 64, system="", user="", reply=reply, context=context)
        write_recording(folder, recording)


def write_task(
    folder: Path, llm: Mapping[str, object], iterations: int = 1, branches: int = 2, **search: object
) -> Path:
    """A task folder with baseline, reference and config; the config's path."""
    (folder / "kernel.cpp").write_text(BASELINE)
    (folder / "reference.py").write_text(REFERENCE)
    config = {
        "task": {
            "name": "matvec",
            "baseline": "kernel.cpp",
            "reference": "reference.py",
            "dims": {"N": 640},
            "check_dims": [{"N": 1}, {"N": 37}],
            "tensors": {
                "A": {"shape": ["N", "N"]},
                "x": {"shape": ["N"]},
                "y": {"shape": ["N"]},
            },
            "tolerance": {"atol": 1e-3, "rtol": 1e-3},
            "work": {"flops": "2*N*N", "bytes": "4*(N*N + 2*N)"},
        },
        "search": {"iterations": iterations, "branches": branches, **search},
        "llm": dict(llm),
        "measure": {"warmup_ms": 2, "min_time_s": 0.02, "max_time_s": 3},
        "memory": {"url": "sqlite:///memory.db"},
        "output": "runs",
    }
    path = folder / "task.yaml"
    path.write_text(json.dumps(config))
    return path


def replay_task(
    folder: Path, answers: Mapping[str, str], iterations: int = 1, branches: int = 2, **search: object
) -> Path:
    """A task whose answers are played back."""
    record(folder / "answers", answers, branches)
    return write_task(folder, {"provider": "replay", "answers": "answers"}, iterations, branches, **search)


def roofclimb(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command line, as a user calls it."""
    return subprocess.run(
        [sys.executable, "-m", "agent", *arguments],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command line in the background."""
    return subprocess.Popen(
        [sys.executable, "-m", "agent", *arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(folder: Path, event: str, process: subprocess.Popen[str]) -> None:
    """Until the log holds the event: `type`, or `type key`."""
    kind, _, key = event.partition(" ")
    log = folder / "runs" / "latest" / "events.jsonl"
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        lines = log.read_text().splitlines() if log.exists() else []
        if any(f'"type":"{kind}"' in line and (not key or f'"key":"{key}"' in line) for line in lines):
            return
        time.sleep(0.005)
    raise AssertionError(f"{event} never came; the run ended with {process.poll()}")


def state_of(folder: Path) -> State:
    """`state.json` of the newest run."""
    return State.model_validate_json((folder / "runs" / "latest" / "state.json").read_text())


def events_of(folder: Path, kind: str) -> Sequence[dict[str, Any]]:
    """Logged events of one type of the newest run."""
    lines = (folder / "runs" / "latest" / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["type"] == kind]


def one_line(text: str) -> str:
    """The single `roofclimb:` line of stderr."""
    lines = [line for line in text.splitlines() if re.match(r"roofclimb: ", line)]
    assert len(lines) == 1, text
    assert "Traceback" not in text
    return lines[0]
