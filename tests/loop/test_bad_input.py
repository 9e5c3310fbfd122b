"""Bad input gets one clear line, the right exit code, and leaves nothing half-written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backends import call_filter
from tests.loop.scenario import BROKEN, WRONG, one_line, replay_task, roofclimb, write_task

SCALE = 'extern "C" void solve(const float* x, float* y, int n) { for (int i = 0; i < n; ++i) y[i] = 2 * x[i]; }\n'
HEAD = 'extern "C" void solve(const float* A, const float* x, float* y, int N)'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "answers").mkdir()
    replay_task(tmp_path, {})
    return tmp_path


def refused(folder: Path, code: int, said: str, *overrides: str, env: dict[str, str] | None = None) -> None:
    settings = [text for o in overrides for text in ("--set", o)]
    done = roofclimb("run", "--config", "task.yaml", *settings, cwd=folder, env=env)
    line = one_line(done.stderr)
    assert done.returncode == code, done.stderr
    assert said in line
    assert done.stdout == ""
    assert not list((folder / "runs").glob("run_*"))


@pytest.mark.parametrize(
    ("override", "code", "said"),
    [
        ("serch.branches=2", 2, "did you mean `search`?"),
        ("task.tolerance.atol=x", 2, "task.tolerance.atol"),
        ("task.baseline=gone.cpp", 2, "no file at"),
        ("task.dims={M: 4}", 2, "N"),
        ("llm.provider=antropic", 2, "anthropic"),
        ("llm={provider: anthropic, model: claude-sonnet-4-5}", 4, "ANTHROPIC_API_KEY"),
        ("llm.answers=gone", 2, "gone"),
        ("task.tolerance.atol=1e9", 2, "tolerance is unfit"),
        ("output=/dev/null/runs", 3, "/dev/null/runs"),
        ("memory.url=nonsense", 2, "memory.url"),
        ("task.backend=cudda", 2, "'cuda'"),
        ("task.reference=null", 2, "reference"),
    ],
)
def test_a_wrong_config_is_one_line(folder: Path, override: str, code: int, said: str) -> None:
    refused(folder, code, said, override)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("int other() { return 1; }\n", "solve"),
        (f'{HEAD} {{ }}\nextern "C" void solve(const float* A, float* y) {{ }}\n', "2 live definitions"),
        (f"// {HEAD} {{ }}\n", "solve"),
        ('struct S {};\nextern "C" void solve(S* s, float* y, int N) { }\n', "S"),
        ('extern "C" void solve(const float* A, const float* x, const float* y, int N) { }\n', "no output"),
        (BROKEN, "does not build"),
        (WRONG, "baseline"),
        (f"{HEAD} {{ *(volatile int*)0 = 1; }}\n", "SIGSEGV"),
    ],
    ids=["no solve", "two solves", "commented out", "struct", "no output", "broken", "wrong", "crash"],
)
def test_a_wrong_baseline_is_one_line(folder: Path, source: str, said: str) -> None:
    (folder / "kernel.cpp").write_text(source)
    refused(folder, 2, said)


def test_a_baseline_that_hangs_is_stopped(folder: Path) -> None:
    (folder / "kernel.cpp").write_text(f"{HEAD} {{ volatile int go = 1; while (go) {{ }} }}\n")
    refused(folder, 2, "baseline", "measure.call_timeout_s=2")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def reference(A, x, y, N):\n    raise ValueError('no idea')\n", "no idea"),
        ("def reference(A, x, y, N):\n    return A\n", "shape"),
        ("def reference(A, x, y, N):\n    pass\n", "reference"),
        ("def other():\n    pass\n", "reference"),
        ("syntax error\n", "reference"),
    ],
    ids=["raises", "wrong shape", "does nothing", "missing", "not python"],
)
def test_a_wrong_reference_is_one_line(folder: Path, source: str, said: str) -> None:
    (folder / "reference.py").write_text(source)
    refused(folder, 2, said)


def test_without_a_compiler_the_line_says_what_to_install(folder: Path) -> None:
    refused(folder, 3, "apt install g++", env={"CXX": "no-such-compiler"})


def test_an_unknown_price_with_a_dollar_budget_is_an_error_and_not_free(folder: Path) -> None:
    llm = "llm={provider: openai, model: model-of-tomorrow}"
    refused(folder, 2, "no price is known", llm, "budget.usd=5", env={"OPENAI_API_KEY": "x"})


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_ends_with_3_and_keeps_what_was_written(folder: Path) -> None:
    small = folder / "small"
    small.mkdir()
    if os.system(f"mount -t tmpfs -o size=64k tmpfs {small} 2>/dev/null") != 0:
        pytest.skip("no permission to mount a file system here")
    try:
        done = roofclimb("run", "--config", "task.yaml", "--set", f"output={small}/runs", cwd=folder)
        assert done.returncode == 3, done.stderr
        assert "space" in one_line(done.stderr).lower()
    finally:
        os.system(f"umount {small}")
        shutil.rmtree(small, ignore_errors=True)


def test_errors_are_json_too_when_json_is_asked_for(folder: Path) -> None:
    done = roofclimb("run", "--config", "gone.yaml", "--json", cwd=folder)
    assert json.loads(done.stdout)["exit_code"] == done.returncode == 2


def test_a_task_without_a_reference_can_be_measured_but_is_never_a_pass(folder: Path) -> None:
    (folder / "scale.cpp").write_text(SCALE)
    done = roofclimb("bench", "scale.cpp", "--dim", "n=100000", "--json", cwd=folder)
    assert json.loads(done.stdout)["verdict"] == "unverified"


def test_bench_says_what_is_wrong_with_a_kernel(folder: Path) -> None:
    write_task(folder, {"provider": "replay", "answers": "answers"})
    (folder / "wrong.cpp").write_text(WRONG)
    (folder / "broken.cpp").write_text(BROKEN)
    results = {}
    for name in ("wrong", "broken"):
        done = roofclimb("bench", "--config", "task.yaml", "--kernel", f"{name}.cpp", "--json", cwd=folder)
        assert done.returncode == 0
        results[name] = json.loads(done.stdout)
    assert results["wrong"]["verdict"] == "fail"
    assert "y[" in results["wrong"]["reason"]
    assert results["broken"]["verdict"] == "fail"
    assert "build" in results["broken"]["reason"]
    assert results["broken"]["median_ms"] is None


def test_bench_without_a_task_file_measures_against_a_reference(folder: Path) -> None:
    (folder / "scale.cpp").write_text(SCALE)
    (folder / "double.py").write_text("def reference(x, y, n):\n    return {'y': 2 * x}\n")
    done = roofclimb("bench", "scale.cpp", "--ref", "double.py", "--dim", "n=100000", "--json", cwd=folder)
    result = json.loads(done.stdout)
    assert result["verdict"] == "pass", result
    assert result["samples"] >= 10
    assert result["median_ms"] > 0
    assert result["reference_ms"] > 0
    assert result["speedup"] == pytest.approx(result["reference_ms"] / result["median_ms"])
    assert result["gbps"] > 0
    missing = roofclimb("bench", "scale.cpp", "--ref", "double.py", "--dim", "m=4", cwd=folder)
    assert missing.returncode == 2
    assert "`int n` has no value" in one_line(missing.stderr)


def test_check_tests_the_machine_and_the_task(folder: Path) -> None:
    done = roofclimb("check", "--config", "task.yaml", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["task"]["rejected"]) >= {"zeros", "constant", "half"}
    assert (folder / "env.json").is_file()
    assert "objdump" in (folder / "env.md").read_text()
    assert roofclimb("check", cwd=folder).returncode == 0


def test_a_dry_run_of_a_kernel_at_its_peak_says_that_nothing_would_be_asked(folder: Path) -> None:
    done = roofclimb("run", "--config", "task.yaml", "--dry-run", "--set", "search.near_peak=1", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Nothing would be asked" in done.stdout


def test_require_sandbox_refuses_a_machine_that_lacks_a_layer(folder: Path) -> None:
    checked = json.loads(roofclimb("check", "--config", "task.yaml", "--json", cwd=folder).stdout)
    layers = checked["environment"]["layers"]
    done = roofclimb("run", "--config", "task.yaml", "--require-sandbox", "--dry-run", cwd=folder)
    assert done.returncode == (0 if all(layers.values()) else 3)


def test_require_sandbox_counts_the_walls_around_builds(folder: Path) -> None:
    def without_landlock() -> subprocess.CompletedProcess[str]:
        assert call_filter.refuse((444,))  # landlock_create_ruleset
        return roofclimb("run", "--config", "task.yaml", "--require-sandbox", "--dry-run", cwd=folder)

    with ThreadPoolExecutor(1) as thread:  # a filter is for good, so it goes with a thread
        done = thread.submit(without_landlock).result()
    assert done.returncode == 3
    assert "build_files" in one_line(done.stderr)


def test_a_baseline_with_bytes_that_are_not_utf8_is_measured_all_the_same(folder: Path) -> None:
    kernel = folder / "kernel.cpp"
    kernel.write_bytes(b"// na\xefve\n" + kernel.read_bytes())
    done = roofclimb("run", "--config", "task.yaml", "--dry-run", cwd=folder, env={"LC_ALL": "C", "PYTHONUTF8": "0"})
    assert done.returncode == 0, done.stderr


def test_inspect_shows_what_would_be_bound(folder: Path) -> None:
    done = roofclimb("inspect", "kernel.cpp", "--json", cwd=folder)
    shown = json.loads(done.stdout)
    assert shown["backend"] == "cpp"
    assert [(p["name"], p["dtype"], p["pointer"], p["role"]) for p in shown["parameters"]] == [
        ("A", "float32", True, "in"),
        ("x", "float32", True, "in"),
        ("y", "float32", True, "out"),
        ("N", "int32", False, "scalar"),
    ]


def test_a_dry_run_renders_the_prompt_and_asks_nothing(folder: Path) -> None:
    llm = "llm={provider: anthropic, model: claude-sonnet-4-5}"
    done = roofclimb("run", "--config", "task.yaml", "--dry-run", "--json", "--set", llm, cwd=folder)
    assert done.returncode == 0, done.stderr
    estimate = json.loads(done.stdout)
    assert "# Your answer: the plan" in estimate["prompt"]
    assert estimate["input_tokens"] > estimate["first_prompt_tokens"] > 500
    assert estimate["usd"] > 0
    assert not (folder / "runs").exists()
