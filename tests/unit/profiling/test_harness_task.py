"""The task's own test: an unfit task is said to be so in one line, before a night is spent on it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from backends.types import Parameter, Signature, ToolchainError
from profiling.findings import TaskCheck
from profiling.harness import wire
from profiling.harness.harness import Harness
from profiling.harness.inputs import CHECKED
from profiling.harness.oracle import Oracle
from profiling.harness.reference import Reference
from profiling.types import Case, Limits, MeasureSettings, Problem, Scalar, TaskError, Tensor, Tolerance
from tests.kernels import compile_kernel, gemm_problem, integer, pointer

SETTINGS = MeasureSettings(warmup_ms=1.0, min_time_s=0.005, max_time_s=3.0)
LIMITS = Limits(call_s=2.0)
SCALE_HEAD = 'extern "C" void solve(const float* x, float* y, float a, int n)'
SCALE = f"{SCALE_HEAD} {{ for (int i = 0; i < n; i++) y[i] = a * x[i]; }}"
SIGNATURE = Signature(
    (
        pointer("x", const=True),
        pointer("y", const=False),
        Parameter("a", "float", "float32", pointer=False, const=False),
        integer("n"),
    )
)


def scale_case(n: int, a: float = 2.5) -> Case:
    tensors = (Tensor("x", (n,), "float32", "in"), Tensor("y", (n,), "float32", "out"))
    return Case({"n": n}, (*tensors, Scalar("a", "float32", a), Scalar("n", "int32", n)))


def check(
    folder: Path,
    reference: str,
    kernel: str = SCALE,
    *,
    n: int = 1000,
    a: float = 2.5,
    checks: tuple[int, ...] = (),
    tolerance: Tolerance | None = None,
    limits: Limits = LIMITS,
    baseline_factor: float = 8.0,
) -> TaskCheck:
    path = folder / "ref.py"
    path.write_text(reference)
    extra = tuple(scale_case(m, a) for m in checks)
    problem = Problem("scale", SIGNATURE, scale_case(n, a), extra, path, tolerance, baseline_factor)
    with Harness(problem, SETTINGS, limits, folder / "cache") as harness:
        return harness.check_task(compile_kernel(kernel, folder, "baseline"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("task")


def load(folder: Path, text: str) -> Reference:
    path = folder / "ref.py"
    path.write_text(text)
    return Reference(path, lambda name, limit_s: None, 1.0)


@pytest.mark.parametrize(
    "body",
    [
        "y.copy_(a * x)",
        "y[:] = a * x",
        "return a * x",
        "return (a * x,)",
        "return {'y': (a * x).numpy()}",
    ],
)
def test_a_reference_may_write_in_place_or_return(folder: Path, body: str) -> None:
    reference = load(folder, f"def reference(x, y, a, n):\n    {body}\n")
    x = torch.arange(1000, dtype=torch.float32)
    found = reference.compute(scale_case(1000), {"x": x})
    assert found["y"].dtype == torch.float64
    assert torch.equal(found["y"], 2.5 * x.double())


def test_what_a_module_says_of_itself_is_used(folder: Path) -> None:
    text = "atol = 1e-5\nrtol = 1e-6\ndef reference(**k):\n    print('noise')\n    return k['a'] * k['x']\n"
    found = check(folder, text + "def flops(n):\n    return n\ndef bytes(n):\n    return 8 * n\n")
    assert found.tolerance is not None
    assert (found.tolerance.atol, found.tolerance.rtol, found.flops, found.bytes) == (1e-5, 1e-6, 1000.0, 8000.0)
    assert set(found.rejected) == {"zeros", "constant", "half", "input copy"}
    assert found.reference_ms is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def reference(x, y, a, n):\n    raise ValueError('no luck')\n", r"raised: ValueError: no luck \(line 2\)"),
        ("import nowhere\n", r"ref.py: cannot be imported: ModuleNotFoundError: No module named 'nowhere' \(line 1\)"),
        ("def reference(:\n", r"ref.py: cannot be imported: SyntaxError"),
        ("raise SystemExit(0)\n", r"ref.py: cannot be imported: SystemExit: 0"),
        ("def ref(x): pass\n", r"ref.py: has no function reference"),
        ("def reference(x, y, a, n): pass\n", r"neither wrote nor returned y"),
        ("def reference(x, y, a, n): y[:9] = 1\n", r"left 991 of 1000 elements of y unwritten"),
        ("def reference(x, y, a, n): return x[:5]\n", r"returned y with shape \[5\], the task says \[1000\]"),
        ("def reference(x, y, a, n): return x, x\n", r"returned 2 values for 1 outputs \(y\)"),
        ("def reference(x, y, a, n): return {'z': x}\n", r"returned z; the outputs are y"),
        ("def reference(x, y, b): return x\n", r"wants b; the kernel's parameters are x, y, a, n"),
        ("atol = 'small'\ndef reference(x, a): return a * x\n", r"atol is 'small', not a number"),
        ("def reference(x, a): return a * x\ndef flops(n): return None\n", r"flops\(\) returned None"),
    ],
)
def test_an_unfit_reference_is_named_with_its_fault(folder: Path, text: str, said: str) -> None:
    case = scale_case(1000)

    def use() -> None:
        reference = load(folder, text)
        reference.tolerance()
        reference.work("flops", case)
        reference.compute(case, {"x": torch.ones(1000)})

    with pytest.raises(TaskError, match=said):
        use()


def test_a_reference_that_ends_its_process_is_named(folder: Path) -> None:
    with pytest.raises(TaskError, match="the reference took its process down: it ended with status 3"):
        check(folder, "import os\ndef reference(**k): os._exit(3)\n")


def test_inputs_of_the_wrong_size_are_named(folder: Path) -> None:
    with pytest.raises(TaskError, match=r"x has shape \[1\], the task says \[1000\]"):
        check(folder, "def reference(x, a): return a * x\ndef inputs(seed, n): return {'x': [1]}\n")


def test_a_reference_that_hangs_ends_in_one_line(folder: Path) -> None:
    with pytest.raises(TaskError, match="gave no answer within 1 s"):
        check(folder, "import time\ndef reference(**k): time.sleep(600)\n", limits=Limits(call_s=0.25))


def test_a_tolerance_that_zeros_would_pass_is_unfit(folder: Path) -> None:
    with pytest.raises(TaskError, match="tolerance is unfit: an answer of all zeros would pass"):
        check(folder, "def reference(x, a): return a * x\n", tolerance=Tolerance(atol=100.0, rtol=0.0))


def test_a_tolerance_that_one_constant_would_pass_is_unfit(folder: Path) -> None:
    with pytest.raises(TaskError, match="an answer of one constant would pass"):
        check(folder, "def reference(x, a): return 100 + a * x\n", tolerance=Tolerance(atol=50.0, rtol=0.0))


def test_a_wrong_baseline_is_the_tasks_fault(folder: Path) -> None:
    with pytest.raises(TaskError, match=r"baseline fails at the timed dims \{'n': 1000\}: y\[0\] is .*, expected"):
        check(folder, "def reference(x, a): return a * x\n", SCALE.replace("a * x", "3 * x"))


def test_a_baseline_that_hangs_is_the_tasks_fault(folder: Path) -> None:
    hang = f"{SCALE_HEAD} {{ for (volatile int i = 1; i;) {{}} }}"
    with pytest.raises(TaskError, match=r"baseline fails at the timed dims .*: exceeded its time limit"):
        check(folder, "def reference(x, a): return a * x\n", hang, limits=Limits(call_s=0.3))


def test_shapes_that_the_baseline_fails_are_dropped_and_listed(folder: Path) -> None:
    rounds_down = SCALE.replace("i < n", "i < n / 8 * 8")
    found = check(folder, "def reference(x, a): return a * x\n", rounds_down, checks=(64, 77))
    dropped: set[int] = {dims["n"] for dims, _ in found.dropped_checks}
    assert dropped == {77}
    assert all("y[7" in reason for _, reason in found.dropped_checks)


def test_the_factors_of_the_norm_check_hold_whoever_gives_the_bounds(folder: Path) -> None:
    text = "atol = 1e-5\nrtol = 1e-6\ndef reference(x, a): return a * x\n"
    for tolerance, atol in ((None, 1e-5), (Tolerance(atol=1e-4, rtol=0.0), 1e-4)):
        found = check(folder, text, tolerance=tolerance, baseline_factor=512.0).tolerance
        assert found is not None
        assert (found.atol, found.baseline_factor, found.eps_factor) == (atol, 512.0, 32.0)


def test_a_candidate_that_cannot_be_loaded_fails_where_the_baseline_fails_an_extra_shape(tmp_path: Path) -> None:
    """A shape without a check left must not take the whole run down with the first bad candidate."""
    path = tmp_path / "ref.py"
    path.write_text("def reference(x, a): return a * x\n")
    problem = Problem("scale", SIGNATURE, scale_case(64), (scale_case(77),), path)
    bad = SCALE + "\n__attribute__((constructor)) static void fall() { __builtin_trap(); }"
    with Harness(problem, SETTINGS, LIMITS, tmp_path / "cache") as harness:
        baseline = compile_kernel(SCALE.replace("i < n", "i < n / 8 * 8"), tmp_path, "baseline")
        assert len(harness.check_task(baseline).dropped_checks) == len(CHECKED)
        assert harness.evaluate(compile_kernel(bad, tmp_path, "bad")).verdict == "fail"
        assert harness.evaluate(baseline).verdict == "pass"


def test_a_reference_that_runs_out_of_memory_is_told_to_use_smaller_dims(folder: Path) -> None:
    with pytest.raises(TaskError, match="use smaller dims"):
        check(folder, "import torch\ndef reference(**k): return torch.empty(1 << 46)\n")


def test_what_nobody_foresaw_in_one_request_does_not_end_the_oracle() -> None:
    said = io.StringIO()
    oracle = Oracle(said)
    for line in ("no request", wire.Evaluate(artifacts=(Path("x.so"),)).model_dump_json()):
        oracle.answer(line)  # the second comes before `open`
    replies = [wire.REPLY.validate_json(line) for line in said.getvalue().splitlines()]
    assert [r.fault for r in replies if isinstance(r, wire.Failed)] == ["harness", "harness"]


def test_the_folder_a_run_is_started_in_does_not_disturb_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own `torch.py` or `profiling/` must be neither run nor taken for ours."""
    home = tmp_path / "home"
    for name in ("profiling/__init__.py", "torch.py"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("raise SystemExit(77)\n")
    monkeypatch.chdir(home)
    check(Path(), "def reference(x, a): return a * x\n")


def test_a_kernel_that_copies_may_copy(folder: Path) -> None:
    """The test for copied inputs must not condemn a task whose right answer is a copy."""
    found = check(folder, "def reference(x, a): return a * x\n", a=1.0)
    assert "input copy" not in found.rejected
    assert "zeros" in found.rejected


def test_dims_that_do_not_fit_in_memory_are_refused_with_both_sizes(folder: Path) -> None:
    with pytest.raises(TaskError, match=r"needs \d+\.\d GiB, have \d+\.\d GiB"):
        check(folder, "def reference(x, a): return a * x\n", n=2**31 - 1, limits=LIMITS)


def test_inputs_made_by_the_reference_reach_the_kernel(tmp_path: Path) -> None:
    """Indices cannot be random numbers: a kernel that gathers by them would crash on any others."""
    reference = tmp_path / "ref.py"
    reference.write_text(
        "import numpy\n"
        "def inputs(seed, n):\n    return {'at': numpy.random.default_rng(seed).permutation(n)}\n"
        "def reference(x, at, y, n):\n    y[:] = x[at.long()]\n"
    )
    signature = Signature(
        (pointer("x", const=True), pointer("at", "int32", const=True), pointer("y", const=False), integer("n"))
    )
    tensors = (
        Tensor("x", (500,), "float32", "in"),
        Tensor("at", (500,), "int32", "in", "reference"),
        Tensor("y", (500,), "float32", "out"),
    )
    dims: Mapping[str, int] = {"n": 500}
    problem = Problem("gather", signature, Case(dims, (*tensors, Scalar("n", "int32", 500))), (), reference)
    kernel = 'extern "C" void solve(const float* x, const int* at, float* y, int n)'
    with Harness(problem, SETTINGS, LIMITS, tmp_path / "cache") as harness:
        built = compile_kernel(kernel + "{ for (int i = 0; i < n; i++) y[i] = x[at[i]]; }", tmp_path, "gather")
        harness.check_task(built)
        assert harness.evaluate(built).verdict == "pass"


def test_a_mask_that_zeros_would_pass_is_unfit(tmp_path: Path) -> None:
    """Said as the task's fault, whatever the output's type: a bool has no absolute value."""
    reference = tmp_path / "ref.py"
    reference.write_text("def reference(x, y, n):\n    y.copy_(x > 1e30)\n")
    signature = Signature((pointer("x", const=True), Parameter("y", "bool*", "bool", True, False), integer("n")))
    tensors = (Tensor("x", (500,), "float32", "in"), Tensor("y", (500,), "bool", "out"))
    problem = Problem("mask", signature, Case({"n": 500}, (*tensors, Scalar("n", "int32", 500))), (), reference)
    kernel = (
        'extern "C" void solve(const float* x, bool* y, int n) { for (int i = 0; i < n; i++) y[i] = x[i] > 1e30f; }'
    )
    with (
        Harness(problem, SETTINGS, LIMITS, tmp_path / "cache") as harness,
        pytest.raises(TaskError, match="an answer of all zeros would pass"),
    ):
        harness.check_task(compile_kernel(kernel, tmp_path, "mask"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch has CUDA here")
def test_a_torch_without_cuda_is_the_machines_fault(tmp_path: Path) -> None:
    """Else a user of a GPU task is sent to look for a fault in the task file."""
    problem = replace(gemm_problem(tmp_path), backend="cuda", gpu="GPU-00000000-0000-0000-0000-000000000000")
    with pytest.raises(ToolchainError, match="torch sees no GPU: install a torch that is built for CUDA"):
        Harness(problem, SETTINGS, LIMITS, tmp_path / "cache")
