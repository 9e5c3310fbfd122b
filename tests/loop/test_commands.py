"""The commands that measure one kernel outside a run, on real C++ builds; and what they say where they cannot."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from agent.cli import main
from agent.machine import here
from tests.loop.scenario import METHOD, WRONG, kernel, one_line, roofclimb, write_task

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "tests" / "data" / "ncu"
DOC = ROOT / "docs" / "cli.md"
# A switch that changes nothing, and one that is no known method's.
DEAD = "#if RC_LOOP_UNROLL\n#endif\n#if RC_MY_TRICK\n#endif\n"
GPU = """
__global__ void k(float* y) { *y = 1; }
extern "C" void solve(const float* x, float* y, int n) { k<<<1, 1>>>(y); }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_task(tmp_path, {"provider": "replay", "answers": "answers"})
    (tmp_path / "fast.cpp").write_text(DEAD + kernel())
    (tmp_path / "more.cpp").write_text("#if RC_VECTORIZE_HINTS\n#endif\n" + DEAD + kernel())
    return tmp_path


def found(folder: Path, *arguments: str) -> Any:
    done = roofclimb(*arguments, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_profile_of_a_kernel_shows_its_counters_and_headroom(folder: Path) -> None:
    """On a machine without counters the work alone is counted, and said to be."""
    data = found(folder, "profile", "--config", "task.yaml")
    assert data["verdict"] == "pass"
    assert data["time_ms"] > 0
    assert data["degraded"] is None
    metrics = {m["name"]: m["value"] for m in data["metrics"]}
    assert (data["level"] == "full") == ("l1_miss_rate" in metrics), data["note"]
    bandwidth = max(data["ceilings"]["copy_bytes"], data["ceilings"]["read_bytes"])
    assert metrics["bandwidth_fraction"] == pytest.approx(1e3 * data["work"]["bytes"] / data["time_ms"] / bandwidth)
    assert data["top"]["memory"]
    assert data["headroom"]["floor_ms"] < data["time_ms"]
    assert sum(data["axis_budget"].values()) > 0


def test_roofline_of_another_kernel_of_a_task(folder: Path) -> None:
    done = roofclimb("roofline", "--config", "task.yaml", "--kernel", "fast.cpp", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("fast.cpp, pass: ")
    assert re.search(r"ms is [\d.]+ times the bandwidth floor of", done.stdout), done.stdout
    assert "Ceilings: measured here" in done.stdout


def test_a_kernel_that_is_wrong_has_no_profile(folder: Path) -> None:
    """The time of a kernel that computes something else must not be read as its time."""
    (folder / "bad.cpp").write_text(WRONG)
    done = roofclimb("profile", "--config", "task.yaml", "--kernel", "bad.cpp", cwd=folder)
    assert done.returncode == 2
    assert "is wrong" in one_line(done.stderr)
    assert "y[" in one_line(done.stderr)


@pytest.mark.skipif(here().gpu is not None, reason="there is a GPU here")
def test_a_gpu_kernel_without_a_gpu_ends_with_3(folder: Path) -> None:
    (folder / "k.cu").write_text(GPU)
    for command in ("profile", "roofline"):
        done = roofclimb(command, "k.cu", "--dim", "n=1", "--json", cwd=folder)
        assert done.returncode == 3, done.stderr
        line = one_line(done.stderr)
        assert json.loads(done.stdout) == {"error": line.removeprefix("roofclimb: "), "exit_code": 3}


def test_profile_and_roofline_of_a_page_need_neither_kernel_nor_gpu(folder: Path) -> None:
    page = str(PAGES / "gemm_naive_full_raw.csv")
    (kernel_of_page,) = found(folder, "profile", "--from", page)["kernels"]
    assert kernel_of_page["units"]["gpu__time_duration.sum"] == "s"
    numbers = ("--flops", "2*2048**3", "--bytes", "3*4*2048**2")
    data = found(folder, "roofline", "--from", page, *numbers)
    assert data["headroom"]["time_ms"] == pytest.approx(1e3 * kernel_of_page["metrics"]["gpu__time_duration.sum"])
    assert data["work"] == {"flops": 2 * 2048**3, "bytes": 3 * 4 * 2048**2}
    told = found(folder, "roofline", "--from", page, *numbers, "--time-ms", "0.3")
    assert told["headroom"]["gap"] < data["headroom"]["gap"]


def test_sass_of_a_tasks_kernel_is_held_against_the_baseline(folder: Path) -> None:
    task = ("--config", "task.yaml", "--kernel", "fast.cpp")
    data = found(folder, "sass", *task, "--listing")
    assert data["backend"] == "cpp"
    assert data["same_code"] is False
    assert "ret" in data["listing"]
    verdicts = {p["method"]: p["verdict"] for p in data["presence"]}
    assert verdicts["memory.gather_avoid"] == "verified"
    off = found(folder, "sass", *task, "--set", "task.build.define={RC_LOOP_INTERCHANGE: 0}")
    assert off["mix"]["vector_256"]["after"] < data["mix"]["vector_256"]["after"], "the task's macros count"


def test_ablate_tells_what_each_switch_is_worth(folder: Path) -> None:
    data = found(folder, "ablate", "--config", "task.yaml", "--kernel", "fast.cpp")
    rows = {row["method"]: row for row in data["methods"]}
    assert set(rows) == {METHOD, "compute.loop_unroll"}
    assert rows[METHOD]["method_class"] == "effective", rows[METHOD]
    assert rows[METHOD]["low_ms"] > 0
    assert rows[METHOD]["code_differs"] is True
    assert rows["compute.loop_unroll"]["method_class"] == "implementation_failed"
    assert rows["compute.loop_unroll"]["attribution_ms"] is None
    assert data["audit"].startswith("passed")
    assert data["speedup_interval"][0] > 1
    assert data["smallest_gain"] >= 0.02
    assert any("--method AXIS.my_trick" in note for note in data["notes"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("profile", "give a KERNEL, a task file with --config, or a report with --from"),
        ("profile kernel.cpp --from page.csv", "a kernel, --full and --save go without it"),
        ("profile --from page.csv --full", "a kernel, --full and --save go without it"),
        ("profile --from gone.csv", "gone.csv: no such file"),
        ("profile --config task.yaml --kernel gone.cpp", "gone.cpp: no such file"),
        ("profile --config task.yaml --save x.txt", "--save x.txt: give a new file called ….ncu-rep"),
        ("profile --config task.yaml --save x.ncu-rep", "not profiled by ncu"),
        ("roofline --config task.yaml --flops 2", "a kernel is measured"),
        ("roofline --from page.csv --flops 2*M", "--flops: cannot evaluate `2*M`"),
        ("roofline --from page.csv --flops -1", "is not positive"),
        ("roofline kernel.cpp --dim N=4 --kernel x.cpp", "--kernel goes with --config"),
        ("sass", "give a KERNEL, or a task file with --config"),
        ("sass kernel.cpp --arch sm_90", "leave it out"),
        ("sass kernel.cpp --dim N=4", "--dim is for the `setup` of Triton kernels"),
        ("sass kernel.cpp --method compute.loop_unroll", "--against"),
        ("ablate fast.cpp", "--against"),
        ("ablate --config task.yaml", "give the kernel with --kernel"),
        ("ablate --config task.yaml --kernel kernel.cpp", "has no method's switch"),
        ("ablate --config task.yaml --kernel fast.cpp --method memory.loop_interchang", f"the nearest is `{METHOD}`"),
        ("ablate --config task.yaml --kernel fast.cpp --method memory.streaming_stores", "RC_STREAMING_STORES"),
        ("ablate --config task.yaml --kernel fast.cpp --against fast.cpp", "has no method's switch"),
        (f"ablate --config task.yaml --kernel more.cpp --against fast.cpp --method {METHOD}", "fast.cpp: has RC_LOOP_"),
        ("ablate fast.cpp --against kernel.cpp --dim N=4", "needs a reference"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, said: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "page.csv").write_bytes((PAGES / "gemm_naive_full_raw.csv").read_bytes())
    done = CliRunner().invoke(main, shlex.split(arguments))
    assert done.exit_code == 2, done.output
    assert said in one_line(done.stderr)
    assert done.stdout == ""


def test_every_command_is_documented_with_examples_that_the_command_line_takes() -> None:
    examples = [
        shlex.split(line, comments=True)[3:]
        for line in DOC.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
        if line.startswith("python -m agent ")
    ]
    assert {example[0] for example in examples} == set(main.commands)
    for name, *arguments in examples:
        command = main.commands[name]
        if isinstance(command, click.Group):
            command, arguments = command.commands[arguments[0]], arguments[1:]
        command.make_context(name, arguments)
