"""`sass`: what a user sees of a kernel's machine code without a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.errors import ConfigError
from agent.sass_cli import sass

PLAIN = """
__global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
extern "C" void solve(const float* x, float* y, int n) { twice<<<(n + 255) / 256, 256>>>(x, y, n); }
"""
WIDE = PLAIN.replace("y[i] = 2 * x[i];", "((float4*)y)[i] = ((const float4*)x)[i];")


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, text in (("plain.cu", PLAIN), ("wide.cu", WIDE), ("broken.cu", PLAIN + "x"), ("other.py", "")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_kernel_alone(kernels: Path) -> None:
    data, text = sass(kernels / "plain.cu", None, "sm_90", [])
    json.dumps(data)
    assert data["arch"] == "sm_90"
    assert [f["name"].startswith(("twice(", "_Z5twice")) for f in data["functions"]] == [True]
    assert data["mix"]["global_loads"] == {"before": None, "after": 1}
    assert data["resources"]["registers"]["after"] > 0
    assert data["presence"] == []
    assert data["same_code"] is None
    assert "built for sm_90" in text
    assert "global loads" in text


def test_a_kernel_against_the_one_it_grew_from(kernels: Path) -> None:
    """Named methods are answered one by one; of all others only what is there is told at length."""
    data, text = sass(kernels / "wide.cu", kernels / "plain.cu", "sm_80", [])
    verdicts = {p["method"]: p["verdict"] for p in data["presence"]}
    assert verdicts["memory.vectorized_access"] == "verified"
    assert verdicts["compute.tensor_core"] == "absent"
    assert "memory.tma_tensor_load" not in verdicts  # sm_80 has none
    assert data["mix"]["global_loads_128"] == {"before": 0, "after": 1}
    assert data["same_code"] is False
    assert "memory.vectorized_access: verified: " in text
    assert "LDG.E.128" in text
    _, asked = sass(kernels / "wide.cu", kernels / "plain.cu", "sm_80", ["compute.tensor_core"])
    assert "compute.tensor_core: absent: " in asked
    same, told = sass(kernels / "plain.cu", kernels / "plain.cu", "sm_80", ["memory.vectorized_access"])
    assert same["same_code"] is True
    assert "The same instructions as" in told


def test_where_no_architecture_is_named_both_are_built_for_the_newer(kernels: Path) -> None:
    """Machine code of two architectures cannot be compared."""
    late = WIDE.replace("int i =", 'asm volatile("griddepcontrol.wait;" ::: "memory"); __threadfence(); int i =')
    (kernels / "late.cu").write_text("// wgmma\n" + late, encoding="utf-8")
    data, _ = sass(kernels / "late.cu", kernels / "plain.cu", None, ["latency.pdl_overlap"])
    assert [p["verdict"] for p in data["presence"]] == ["verified"]


def test_what_cannot_be_shown_is_one_clear_line(kernels: Path) -> None:
    wrong: dict[str, Callable[[], object]] = {
        "no such file": lambda: sass(kernels / "none.cu", None, None, []),
        "name the kernel before with --against": lambda: sass(kernels / "plain.cu", None, None, ["memory.async_copy"]),
        "the nearest is `memory.async_copy`": lambda: sass(
            kernels / "plain.cu", kernels / "plain.cu", None, ["memory.async_copi"]
        ),
        "compare like kinds": lambda: sass(kernels / "plain.cu", kernels / "other.py", "sm_80", []),
        "broken.cu": lambda: sass(kernels / "broken.cu", None, "sm_80", []),
    }
    for message, call in wrong.items():
        with pytest.raises(ConfigError) as caught:
            call()
        assert message in str(caught.value)


def test_a_triton_kernel_is_built_for_a_gpu_that_is_not_here(kernels: Path) -> None:
    softmax = Path(__file__).parents[2] / "data" / "triton" / "softmax.py"
    dims = ["rows=64", "cols=1024"]
    data, text = sass(softmax, None, "sm_90", [], dims, listing=True)
    assert data["backend"] == "triton"
    assert data["mix"]["special_functions"]["after"] > 0
    assert "MUFU.EX2" in data["listing"]
    assert text.startswith(data["listing"].rstrip())
    with pytest.raises(ConfigError, match="dims are whole numbers"):
        sass(softmax, None, "sm_90", [], ["rows=many"])


def test_a_name_that_is_no_architecture_is_refused_before_anything_is_built(kernels: Path) -> None:
    with pytest.raises(ConfigError, match="--arch hopper: is no architecture; write it as sm_90"):
        sass(kernels / "plain.cu", None, "hopper", [])
