"""A champion that is fast and right by its results, and unsound: sanitizers keep it out, and the model is told why."""

from __future__ import annotations

import json
from pathlib import Path

from tests.loop.scenario import SWITCH, events_of, fenced, kernel, plan, replay_task, roofclimb, state_of

# Reads x[N]: behind its last element lie guard bytes, which are there to be read and change no result.
AHEAD = f"""
#ifndef {SWITCH}
#define {SWITCH} 1
#endif
extern "C" void solve(const float* __restrict__ A, const float* __restrict__ x, float* __restrict__ y, int N) {{
    for (int i = 0; i < N; ++i) y[i] = 0.0f;
    float next = x[0];
    for (int j = 0; j < N; ++j) {{
        const float now = next;
        next = x[j + 1];
        for (int i = 0; i < N; ++i) y[i] += A[j * N + i] * now;
    }}
}}
"""
LINE = AHEAD.splitlines().index("        next = x[j + 1];") + 1


def run(folder: Path, *more: str, iterations: int) -> None:
    answers = {
        "iter1-plan-0": plan(1),
        "iter1-branch-b0-0": fenced(AHEAD),
        "iter2-plan-0": plan(1, unroll=2),
        "iter2-branch-b0-0": fenced(kernel(2)),
    }
    config = replay_task(folder, answers, iterations=iterations, branches=1, ablate=False)
    # A vector that fills its last 64 bytes ends where its pages do, and the read would crash; at a hidden shape, too.
    dims = ("--set", "task.dims.N=636", "--set", "task.hidden_shapes=0")
    done = roofclimb("run", "--config", str(config), *dims, *more, cwd=folder)
    assert done.returncode == 0, done.stderr


def test_a_fast_kernel_that_reads_past_its_input_is_kept_out_and_the_next_prompt_says_why(tmp_path: Path) -> None:
    run(tmp_path, iterations=2)
    state = state_of(tmp_path)
    found = f"address: heap-buffer-overflow: READ of size 4, 0 bytes after x at kernel.cpp:{LINE}"
    assert [b.status for b in state.branches] == ["pass", "pass"], "its results are right"
    assert [i.status for i in state.iterations] == ["not-accepted", "accepted"]
    assert found in state.iterations[0].reason
    assert "by its times it had won" in state.iterations[0].reason
    latest = tmp_path / "runs" / "latest"
    assert found in (latest / "iterv2" / "prompts" / "iter2-plan-0.prompt.md").read_text()
    assert "heap-buffer-overflow" in (latest / "summary.md").read_text()
    kernels = [e["kernel"] for e in events_of(tmp_path, "sanitized")]
    assert kernels == ["baseline", "iter1/b0", "iter2/b0"], "the baseline once"
    reports = [e["report"] for e in events_of(tmp_path, "sanitized")]
    assert [r["clean"] for r in reports] == [["address", "thread"], ["thread"], ["address", "thread"]]
    assert (
        json.loads((latest / "iterv1" / "sanitizers.json").read_text())["findings"][0]["where"] == f"kernel.cpp:{LINE}"
    )


def test_without_sanitizers_nobody_sees_it(tmp_path: Path) -> None:
    run(tmp_path, "--set", "measure.sanitize=false", iterations=1)
    assert [i.status for i in state_of(tmp_path).iterations] == ["accepted"]
    assert events_of(tmp_path, "sanitized") == []
