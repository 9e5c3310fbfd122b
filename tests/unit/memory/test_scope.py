from __future__ import annotations

import math
from dataclasses import replace

import pytest

from memory.scope import (
    FAMILY_WORDS,
    GPU_BACKENDS,
    SISTERS,
    derive_family,
    describe,
    distance,
    related,
    shape_class,
    terms,
)
from memory.types import Scope

HOPPER = Scope("gemm", "cuda", "sm_90", "1e10")


def far(a: Scope, b: Scope) -> float:
    between, back = distance(a, b), distance(b, a)
    assert between is not None
    assert between == back
    return between


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("gemm_fp32", "gemm"),
        ("SGEMM4096", "gemm"),
        ("batched-matmul", "gemm"),
        ("mm", "gemm"),
        ("softmax_cpu", "softmax"),
        ("RowSoftMax", "softmax"),
        ("layer_norm", "layernorm"),
        ("LayerNorm", "layernorm"),
        ("rms_norm_bf16", "rmsnorm"),
        ("l2_norm", "reduction"),
        ("conv2d", "conv"),
        ("flash_attention_softmax", "attention"),
        ("gemm_bias_relu", "gemm"),
        ("top_k", "topk"),
        ("prefix_sum", "scan"),
        ("my task: Barnes-Hut!", "my_task_barnes_hut"),
        ("hummm", "hummm"),
        ("数", "unnamed"),
        ("x" * 300, "x" * 100),
    ],
)
def test_family_comes_from_the_task_name(name: str, family: str) -> None:
    """A GEMM under another name would start from nothing."""
    assert derive_family(name) == family


def test_explicit_family_wins() -> None:
    assert derive_family("gemm_fp32", "Stencil") == "stencil"
    assert derive_family("gemm_fp32", "  ") == "gemm"


def test_every_sister_is_a_known_family() -> None:
    """A typing error in the table would cut a family off its sisters."""
    assert {family for group in SISTERS for family in group} <= FAMILY_WORDS.keys()


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ({"M": 512, "N": 512, "K": 512}, "1e8"),
        ({"M": 2048, "N": 2048, "K": 2048}, "1e9"),
        ({"n": 1000}, "1e3"),
        ({"n": 999}, "1e2"),
        ({"n": 1000, "offset": 0, "shift": -3}, "1e3"),
        ({"n": 1}, "1e0"),
        ({}, "unsized"),
        ({"offset": 0}, "unsized"),
    ],
)
def test_shape_class_is_the_decade_of_the_work(dims: dict[str, int], expected: str) -> None:
    assert shape_class(dims) == expected


def test_same_scope_is_at_zero() -> None:
    assert distance(HOPPER, replace(HOPPER)) == 0


def test_same_family_is_nearer_than_a_sister() -> None:
    """A softmax would be told of layernorm before softmax."""
    softmax = Scope("softmax", "cpp", "x86_64", "1e8")
    two_decades_off = replace(softmax, shape_class="1e6")
    sister = replace(softmax, family="layernorm")
    assert 0 < far(softmax, two_decades_off) < far(softmax, sister)


def test_sm_90_is_nearer_to_sm_100_than_to_sm_80() -> None:
    blackwell, ampere, variant = (replace(HOPPER, arch=arch) for arch in ("sm_100", "sm_80", "sm_90a"))
    assert 0 < far(HOPPER, variant) < far(HOPPER, blackwell) < far(HOPPER, ampere)


def test_shapes_count_by_decades() -> None:
    near, further, unknown = (replace(HOPPER, shape_class=shape) for shape in ("1e9", "1e7", "unsized"))
    assert far(HOPPER, near) * 3 == far(HOPPER, further)
    assert far(HOPPER, unknown) > far(HOPPER, further)


def test_gpu_backends_are_related_and_cpus_too() -> None:
    assert far(HOPPER, replace(HOPPER, backend="triton")) > 0
    cpu = Scope("gemm", "cpp", "x86_64", "1e8")
    assert far(cpu, replace(cpu, arch="aarch64")) > 0


@pytest.mark.parametrize(
    "other",
    [
        replace(HOPPER, family="sort"),
        replace(HOPPER, backend="cpp"),
        replace(HOPPER, arch="x86_64"),
    ],
)
def test_unrelated_has_no_distance(other: Scope) -> None:
    """A GPU kernel would be told to use AVX."""
    assert distance(HOPPER, other) is None
    assert distance(other, HOPPER) is None


def test_the_terms_of_a_distance_are_those_documented() -> None:
    """`memory explain` shows them, and docs/memory.md has them as a table."""
    far_off = Scope("conv", "triton", "sm_80", "1e7")
    found = terms(HOPPER, far_off)
    assert found["family"] == 3
    assert found["backend"] == 2
    assert found["arch"] == pytest.approx(10 * math.log(90 / 80))
    assert found["shape"] == 1.5
    assert far(HOPPER, far_off) == pytest.approx(sum(term for term in found.values() if term is not None))
    assert terms(HOPPER, replace(HOPPER, arch="sm_90a", shape_class="mine")) == {
        "family": 0,
        "backend": 0,
        "arch": 0.1,
        "shape": 2,
    }
    assert terms(HOPPER, replace(HOPPER, family="sort"))["family"] is None


@pytest.mark.parametrize(
    ("one", "nearer", "further"),
    [
        ("softmax", "softmax", "layernorm"),
        ("layernorm", "softmax", "gemm"),
        ("softmax", "reduction", "gemm"),
        ("gemm", "conv", "softmax"),
        ("scan", "reduction", "gemm"),
    ],
)
def test_kin_are_nearer_than_strangers(one: str, nearer: str, further: str) -> None:
    """A softmax would hear of a GEMM's tiles before a layernorm's shuffles."""
    here = Scope(one, "cuda", "sm_90", "1e7")
    near, off = (distance(here, replace(here, family=name)) for name in (nearer, further))
    assert near is not None
    assert off is None or near < off


def test_nothing_related_is_left_out_of_what_is_asked_for() -> None:
    """A run would not hear of what its store left out."""
    scopes = [Scope(f, b, "sm_90", "1e7") for f in FAMILY_WORDS for b in (*GPU_BACKENDS, "cpp")]
    for here in scopes:
        families, backends = related(here)
        near = {(s.family, s.backend) for s in scopes if distance(here, s) is not None}
        assert near == {(f, b) for f in families for b in backends}


def test_description_is_what_evidence_lines_show() -> None:
    assert describe(HOPPER) == "gemm/cuda/sm_90/1e10"
