"""What the model will see. A change of a template shows as a diff of the snapshots in `tests/data/prompts`.

To accept a change: `UPDATE_SNAPSHOTS=1 python -m pytest tests/unit/prompts/test_rendering.py`, then read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from prompts.renderer import TEMPLATES, number, render

SNAPSHOTS = Path(__file__).parents[2] / "data" / "prompts"

METRIC = {
    "axis": "memory",
    "name": "l1_miss_rate",
    "value": 0.79912,
    "unit": "ratio",
    "good": "low",
    "meaning": "First-level data-cache misses over data accesses.",
}
ADVICE = "memory.tiling_cache (tile_m 64): 1.50x [1.40, 1.60] on gemm/cpp/x86_64/1e8, run_1, iteration 1 (record 7)"
PRIOR = "memory.tiling_cache: 1.31x expected; chance of failing to be implemented 17% (0 of 1 attempt did)"
ROW = {
    "method": "memory.tiling_cache",
    "method_class": "effective",
    "attribution_ms": 1.25,
    "low_ms": 1.0,
    "high_ms": 1.5,
    "reason": "1.500x [1.400, 1.600] with it",
}
VALUES: dict[str, dict[str, object]] = {
    "system": {},
    "task": {
        "task": {
            "name": "gemm",
            "backend": "cpp",
            "contract": "cpp",
            "declaration": "void solve(const float* A, float* C, int* I, int N)",
            "parameters": [
                {"name": "A", "type": "const float*", "role": "in", "shape": "[N, N]"},
                {"name": "C", "type": "float*", "role": "out", "shape": "[N, N]"},
                {"name": "I", "type": "int*", "role": "out", "shape": "[N]"},
                {"name": "N", "type": "int", "role": "dim", "shape": "a dim"},
            ],
            "zeroed": ["C"],
            "unordered": ["I"],
            "ties": {"I": "A"},
            "shapes": "any",
            "dims": ["N"],
            "atol": 1e-4,
            "rtol": 1e-3,
            "precision": "that of the inputs' own types",
            "threads": 1,
            "build": "g++ -O3 -std=c++17",
            "libraries": [],
        },
        "device": {
            "kind": "cpu",
            "name": "A CPU",
            "arch": "x86_64",
            "features": ["avx2", "fma"],
            "caches": "L1d 32 KiB",
        },
        "ceilings": {"flops": "float32 100 GFLOP/s", "copy_rate": "20 GB/s", "read_rate": "15 GB/s"},
    },
    "best": {
        "best": {"label": "iter1/b0", "median_ms": 12.345678, "speedup": 3.2, "source": "int x;", "language": "cpp"}
    },
    "plan": {
        "headroom": {
            "floor_ms": 1.0,
            "time_ms": 12.3,
            "why": "12.3 ms is 12.3 times the floor.",
            "compute": 0.1,
            "memory": 0.9,
            "latency": 0.5,
        },
        "profile": {
            "source": "cachegrind",
            "level": "full",
            "note": "less an empty solve",
            "metrics": [METRIC],
            "kernels": [],
            "resources": [],
            "rules": [],
        },
        "mix": "fma 3, divisions 0",
        "history": [
            {
                "iteration": 1,
                "methods": ["memory.tiling_cache"],
                "outcome": "accepted: 1.50x",
                "rows": [ROW],
                "failures": ["b1: C[3]: 1 is not 2"],
                "findings": ["address: heap-buffer-overflow: READ of size 4, 0 bytes after A at kernel.cpp:7"],
            }
        ],
        "recall": {
            "blocked": [ADVICE],
            "preferred": [ADVICE],
            "lessons": ["tiles fit L2"],
            "priors": [PRIOR],
            "more_blocked": 3,
        },
        "methods": [
            {
                "id": "memory.tiling_cache",
                "axis": "memory",
                "priority": 1,
                "title": "Cache blocking",
                "description": "Cut the loops.",
                "triggers": "l1_miss_rate high",
                "parameters": ["tile_m"],
            }
        ],
        "slots": 3,
        "axis_budget": "memory 2, latency 1",
        "branches": ["b0", "b1"],
        "problems": ["memory.tilling_cache: not in the catalogue (nearest: memory.tiling_cache)"],
    },
    "planned": {
        "plan": {
            "methods": [
                {
                    "id": "memory.tiling_cache",
                    "axis": "memory",
                    "why": "misses",
                    "parameters": '{"tile_m": 64}',
                    "switch": "RC_TILING_CACHE",
                }
            ]
        },
        "switches": "macro",
    },
    "branch": {
        "branch": {"name": "b1", "variant": "tile 32", "siblings": "b0: tile 64"},
        "language": "cpp",
        "duplicate_of": "branch b0",
        "unreadable": "no fenced block",
    },
    "repair": {
        "branch": {"name": "b1", "variant": "tile 32"},
        "language": "cpp",
        "source": "int x",
        "failure": {"stage": "build", "reason": "expected ';'", "evidence": "kernel.cpp:1: error: expected ';'"},
    },
    "ablate": {
        "methods": ["memory.tiling_cache"],
        "method": {"id": "memory.tiling_cache", "title": "Cache blocking"},
        "language": "cpp",
        "source": "int x;",
        "unreadable": None,
    },
}


@pytest.mark.parametrize("template", VALUES)
def test_a_prompt_reads_as_its_snapshot(template: str) -> None:
    text = render(template, **VALUES[template])
    path = SNAPSHOTS / f"{template}.md"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(text)
    assert text == path.read_text()


def test_every_template_has_a_snapshot() -> None:
    """The parts that others include are seen through them, those for GPUs in test_gpu_prompts."""
    parts = {"evidence", "history", "memory", "parameters", "shapes", "right"}
    parts |= {f"contract_{c}" for c in ("cpp", "cuda", "triton")} | {"machine_cpu", "machine_gpu"}
    parts |= {"switches_macro", "switches_constant"}
    assert {p.stem for p in TEMPLATES.glob("*.j2")} == set(VALUES) | parts


@pytest.mark.parametrize("template", [t for t in VALUES if VALUES[t]])
def test_a_missing_value_fails_and_never_reaches_a_model_as_nothing(template: str) -> None:
    for name in VALUES[template]:
        less = {k: v for k, v in VALUES[template].items() if k != name}
        with pytest.raises(UndefinedError):
            render(template, **less)


def test_a_missing_number_says_so() -> None:
    assert number(None) == "not measured"
    assert number(0.00012345678) == "0.0001235"
    assert number(12) == "12"
