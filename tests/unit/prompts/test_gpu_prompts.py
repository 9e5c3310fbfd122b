"""What the model will see of a GPU task: shipped tasks, real ncu pages, and figures of one H200.

To accept a change: `UPDATE_SNAPSHOTS=1 python -m pytest tests/unit/prompts/test_gpu_prompts.py`, then read the diff.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from agent.config import load_config
from agent.paths import CONFIGS
from agent.stages.profile_wording import profile_values, rule_lines
from agent.stages.task_wording import ceiling_values, gpu_values, task_values
from agent.stages.wording import offered
from agent.task import Task, prepare_task
from backends.types import KernelResources
from profiling.findings import Ceilings, Metric, Profile, RuleFinding
from profiling.gpu_device import GpuFacts
from profiling.ncu.pages import parse_pages
from profiling.ncu.summary import kernels_of
from profiling.types import Tolerance
from prompts.catalogue import load_catalogue, switch_name
from prompts.renderer import render

SNAPSHOTS = Path(__file__).parents[2] / "data" / "prompts"
H200 = GpuFacts(
    index=0,
    uuid="GPU-0",
    name="NVIDIA H200",
    arch="sm_90",
    memory_bytes=150_109_880_320,
    sm_count=132,
    l2_bytes=62_914_560,
    shared_per_block_bytes=232_448,
    shared_per_sm_bytes=233_472,
    registers_per_sm=65_536,
    threads_per_sm=2048,
)
CEILINGS = Ceilings(
    copy_bytes=4.28e12,
    read_bytes=4.47e12,
    cache_bytes=None,
    flops={"float32": 51e12, "tf32": 435e12, "bfloat16": 794e12},
    theoretical_flops={},
    theoretical_bytes=4.8e12,
    provenance={},
)
HEADROOM = {
    "floor_ms": 0.34,
    "time_ms": 3.14,
    "why": "9 times the floor",
    "compute": 0.2,
    "memory": 0.9,
    "latency": 0.1,
}
STALL = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
CASES = {
    "cuda": ("gemm", "gemm_naive", ("memory.tiling_smem", "compute.ilp_unroll_register_tile")),
    "cutlass": ("softmax_cutlass", "softmax_two", ("memory.row_on_chip", "memory.vectorized_access")),
    "triton": ("layernorm_triton", "softmax_triton", ("memory.row_on_chip", "compute.launch_config")),
}


@cache
def task_of(name: str) -> Task:
    return prepare_task(load_config(CONFIGS / f"{name}.yaml"))


def profile_of(name: str) -> Profile:
    """A profile as ncu's pages of a run on an H200 give it."""
    folder = SNAPSHOTS / "ncu"
    raw = parse_pages((folder / f"{name}_raw.csv").read_bytes())
    details = folder / f"{name}_details.csv"
    rules = parse_pages(details.read_bytes()).rules if details.is_file() else ()
    kernels = kernels_of(raw.launches)
    metric = Metric(
        STALL, kernels[0].metrics[STALL], "inst", "latency", "low", 0.8, "Warps that wait for global memory."
    )
    return Profile("ncu", "full", (metric,), "full set of one call", kernels, rules)


@cache
def prompt(backend: str) -> str:
    name, pages, methods = CASES[backend]
    profile = profile_of(pages)
    resources = [KernelResources(k.name, "sm_90", 32, 0, 0, 0, 2048, 380) for k in profile.kernels]
    task = render(
        "task",
        task=task_values(task_of(name), Tolerance(1e-5, 1e-4), H200.arch),
        device=gpu_values(H200),
        ceilings=ceiling_values(CEILINGS, "TFLOP/s"),
    )
    plan = [{"id": m, "axis": m.split(".")[0], "why": "…", "parameters": "", "switch": switch_name(m)} for m in methods]
    planned = render("planned", plan={"methods": plan}, switches="constant" if backend == "triton" else "macro")
    evidence = render(
        "evidence",
        headroom=HEADROOM,
        profile=profile_values(profile, profile.metrics, resources),
        mix="instructions 120, LDG 4, FFMA 2",
    )
    return "\n".join((task, planned, evidence))


@pytest.mark.parametrize("backend", CASES)
def test_a_gpu_prompt_reads_as_its_snapshot(backend: str) -> None:
    text = prompt(backend)
    path = SNAPSHOTS / f"gpu_{backend}.md"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("backend", CASES)
def test_where_any_shape_must_work_no_prompt_tells_the_timed_one(backend: str) -> None:
    """A model that knows the timed dims writes for them alone."""
    text = prompt(backend)
    dims = load_config(CONFIGS / f"{CASES[backend][0]}.yaml").task.dims
    assert not {str(v) for v in dims.values()} & set(re.findall(r"\d+", text))
    assert "must be right for any positive values of the dims" in text


def test_a_fact_that_could_not_be_read_is_left_out_and_a_number_never_made_up() -> None:
    unknown = GpuFacts(0, "GPU-0", "NVIDIA H200", "sm_90")
    told = render(
        "task",
        task=task_values(task_of("gemm"), Tolerance(1e-5, 1e-4), "sm_90"),
        device=gpu_values(unknown),
        ceilings=ceiling_values(CEILINGS, "TFLOP/s"),
    )
    assert "\nNVIDIA H200, sm_90.\n" in told
    assert "None" not in told


@pytest.mark.parametrize(("arch", "features"), [("sm_80", None), ("sm_90", "wgmma"), ("sm_100", "tcgen05")])
def test_instructions_of_one_architecture_alone_are_offered_there(arch: str, features: str | None) -> None:
    found = task_values(task_of("gemm"), Tolerance(1e-5, 1e-4), arch)["features"]
    assert found is None if features is None else features in str(found)


def test_a_metric_that_was_not_measured_says_so_in_the_table_of_kernels() -> None:
    profile = profile_of("gemm_naive")
    bare = replace(profile, kernels=tuple(replace(k, metrics={}, time_ms=None, share=None) for k in profile.kernels))
    text = render("evidence", headroom=HEADROOM, profile=profile_values(bare, [], []), mix="")
    assert "| gemm_kernel | 1 | not measured | not measured | 16x16x1 |" + 6 * " not measured |" in text


def test_rules_are_told_largest_gain_first_and_without_what_a_kernel_cannot_do() -> None:
    """Compressible memory is for whoever allocates it: an estimate of 21% there would lead every plan astray."""
    profile = profile_of("softmax_two")
    lines = rule_lines(profile.rules, several=True)
    gains = [float(found[1]) for line in lines if (found := re.search(r", ([\d.]+) %", line))]
    assert len(lines) == len(gains) == 6
    assert gains == sorted(gains, reverse=True)
    assert any(r.rule == "MemoryL2Compression" for r in profile.rules)
    assert not any("MemoryL2Compression" in line for line in lines)
    assert any("row_stats" in line for line in lines)


def test_a_long_rule_is_cut_between_words() -> None:
    rule = RuleFinding("k(int)", "Long", "OPT", "word " * 200, "local", 12.345)
    (line,) = rule_lines([rule], several=False)
    assert line.startswith("Long, 12.3 % of the part it speaks of: word word")
    assert line.endswith("word …")
    assert len(line) < 360


def test_only_methods_of_backend_architecture_and_open_axes_reach_a_prompt() -> None:
    """An axis without slots would tempt a plan that is then refused."""
    catalogue = load_catalogue()
    chosen = offered(catalogue, "triton", "sm_80", {"compute": 0, "memory": 2, "latency": 1}, ())
    ids = {m.id for m in chosen}
    assert {m.axis for m in chosen} == {"memory", "latency"}
    assert "memory.row_on_chip" in ids
    assert "memory.tma_tensor_load" not in ids  # needs sm_90
    assert "memory.bank_conflict" not in ids  # Triton lays out shared memory itself
    assert "memory.tma_tensor_load" in {m.id for m in offered(catalogue, "triton", "sm_90a", {"memory": 1}, ())}
