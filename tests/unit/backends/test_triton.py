"""What a user loses when Triton builds go wrong: a night of candidates that fail on the GPU, or that cheat there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from backends import walls
from backends.registry import detect, get_backend
from backends.triton import TritonBackend
from backends.triton_artifact import read_artifact
from backends.types import Argument, BuildSpec, Built, Rejected, SourceError, ToolchainError

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data" / "triton"
BACKEND = TritonBackend()
X = Argument("x", "float32", (4096, 1000), None, output=False)
Y = Argument("y", "float32", (4096, 1000), None, output=True)
ROWS, COLS = (Argument(name, "int64", None, value, output=False) for name, value in (("rows", 4096), ("cols", 1000)))
SOFTMAX = BuildSpec(arch="sm_90", arguments=(X, Y, ROWS, COLS), timeout_s=100.0)


def product(n: int) -> tuple[Argument, ...]:
    return (
        *(Argument(name, "bfloat16", (n, n), None, output=False) for name in "ab"),
        Argument("c", "float32", (n, n), None, output=True),
        *(Argument(name, "int64", None, n, output=False) for name in "MNK"),
    )


MATMUL = BuildSpec(arch="sm_90", arguments=product(512), elsewhere=(product(128),), timeout_s=100.0)
HEAD = "import torch\nimport triton\nimport triton.language as tl\n"
COPY = f"""{HEAD}
@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)
"""


def write(folder: Path, text: str) -> Path:
    source = folder / "mine.py"
    source.write_text(text, encoding="utf-8")
    return source


def built(source: Path, spec: BuildSpec, cache: Path) -> Built:
    result = BACKEND.build(source, spec, cache)
    assert isinstance(result, Built), result
    return result


def rejected(source: Path, spec: BuildSpec, cache: Path) -> Rejected:
    result = BACKEND.build(source, spec, cache)
    assert isinstance(result, Rejected), result
    assert result.stage == "build"
    assert "\n" not in result.reason
    return result


def opcodes(made: Built) -> list[str]:
    listing = BACKEND.disassemble(made)
    assert listing is not None
    return [i.opcode for function in listing.functions for i in function.instructions]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("triton builds")


@pytest.fixture(scope="module")
def softmax(cache: Path) -> Built:
    return built(DATA / "softmax.py", SOFTMAX, cache)


@pytest.fixture(scope="module")
def matmul(cache: Path) -> Built:
    return built(DATA / "matmul.py", MATMUL, cache)


def test_a_python_file_is_a_triton_kernel() -> None:
    """`backend: auto` is the default."""
    assert get_backend(detect(DATA / "softmax.py")).name == "triton"


def test_the_versions_that_decide_a_build_are_named() -> None:
    """A result is reproduced with the same Triton, torch and ptxas, or not at all."""
    tools = BACKEND.toolchain()
    assert tools["triton"][0].isdigit()
    assert tools["torch"][0].isdigit()
    assert "cuda" in tools["ptxas"]


def test_setup_tells_names_shapes_and_types_without_making_the_data() -> None:
    """32 TiB of tensors are described on a laptop without a GPU."""
    rows = cols = 1 << 21
    large, small = BACKEND.describe_all(
        DATA / "softmax.py", [{"rows": rows, "cols": cols}, {"cols": 1000, "rows": 4096}], 60.0
    )
    assert large == (
        replace(X, shape=(rows, cols)),
        replace(Y, shape=(rows, cols)),
        replace(ROWS, value=rows),
        replace(COLS, value=cols),
    )
    assert small == SOFTMAX.arguments


SETUP_VALUES = """
import torch
def setup(n, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    keep = torch.randint(0, 2, (n,), device="cuda", generator=generator).bool()
    index = torch.nonzero(torch.ones(n, device="cuda")).flatten().to("cuda", torch.int32)
    scale = float(index.sum()) / n
    inputs = {"keep": keep, "index": index, "out": torch.empty(len(index), device=keep.device, dtype=torch.float8_e5m2)}
    return {"inputs": {**inputs, "scale": scale, "causal": keep.is_cuda}, "outputs": ("out",)}
def run_kernel(**_): pass
"""


def test_a_setup_that_looks_at_its_data_is_described_too(tmp_path: Path) -> None:
    """CSR rows, permutations and masks have sizes that depend on values."""
    assert BACKEND.describe(write(tmp_path, SETUP_VALUES), {"n": 6}, 60.0) == (
        Argument("keep", "bool", (6,), None, output=False),
        Argument("index", "int32", (6,), None, output=False),
        Argument("out", "float8_e5m2", (6,), None, output=True),
        Argument("scale", "float64", None, 2.5, output=False),
        Argument("causal", "bool", None, True, output=False),
    )


@pytest.mark.parametrize(
    ("setup", "said"),
    [
        ("def setup(n, seed):\n    return 1 // (n - n)", "mine.py:4: ZeroDivisionError: "),
        (
            "def setup(n, seed): return {'inputs': {'y': None}, 'outputs': ['y']}",
            "output `y` is not a tensor among its",
        ),
        ("def setup(n): return {}", "setup(n, seed): got an unexpected keyword argument 'seed'"),
        ("import os\ndef setup(n, seed): os.abort()", "mine.py: setup() crashed: SIG"),
    ],
)
def test_what_setup_gets_wrong_is_one_clear_line(setup: str, said: str, tmp_path: Path) -> None:
    """The baseline is the user's own: the message is all the help there is."""
    with pytest.raises(SourceError) as caught:
        BACKEND.describe(write(tmp_path, f"import torch\ndef run_kernel(**_): pass\n{setup}\n"), {"n": 8}, 60.0)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_without_setup_is_refused_before_anything_runs(tmp_path: Path) -> None:
    """A typo costs no seconds."""
    with pytest.raises(SourceError, match=r"mine.py: no function `setup`"):
        BACKEND.describe(write(tmp_path, "raise SystemExit\ndef run_kernel(**_): pass"), {}, 60.0)


def test_the_signature_is_the_tasks(tmp_path: Path) -> None:
    """A candidate that asks for more than the task gives is refused before it is built."""
    assert [p.name for p in BACKEND.signature(DATA / "softmax.py", SOFTMAX).parameters] == ["x", "y", "rows", "cols"]
    with pytest.raises(SourceError, match=r"mine.py:1: run_kernel requires `answer`"):
        BACKEND.signature(write(tmp_path, "def run_kernel(answer, **_): pass"), SOFTMAX)


@pytest.mark.parametrize(("arch", "shown"), [("sm_80", "sm_80"), ("sm_90", "sm_90a"), ("sm_100", "sm_100a")])
def test_a_kernel_compiles_for_a_named_target_without_a_gpu(arch: str, shown: str, cache: Path) -> None:
    """The machine code is what the presence of a method is judged by."""
    made = built(DATA / "softmax.py", replace(SOFTMAX, arch=arch), cache)
    listing = BACKEND.disassemble(made)
    assert listing is not None
    assert listing.arch == shown
    assert listing.functions[0].name == "softmax_kernel"
    found = {i.opcode.partition(".")[0] for function in listing.functions for i in function.instructions}
    assert {"LDG", "STG", "MUFU", "SHFL", "EXIT"} <= found
    (taken,) = made.resources
    assert taken.name == "softmax_kernel"
    assert 8 < (taken.registers or 0) < 255
    assert taken.spill_store_bytes in (0, None)
    (kernel,) = read_artifact(made.artifact).kernels
    assert (kernel.grid, kernel.num_warps, kernel.choice) == ((4096, 1, 1), 8, None)
    assert f".target {shown}" in (made.artifact / kernel.ptx).read_text()


def test_an_equal_build_is_taken_from_the_cache(softmax: Built, cache: Path) -> None:
    """The same kernel is built for verification, timing, profile and ablation."""
    again = built(DATA / "softmax.py", SOFTMAX, cache)
    assert again.cached
    assert again == replace(softmax, cached=True, seconds=0.0)
    assert not [entry.name for entry in cache.iterdir() if len(entry.name) != 64]


def test_the_command_of_a_build_builds_it(softmax: Built, tmp_path: Path) -> None:
    """`best/manifest.json` promises a command that rebuilds the kernel."""
    done = subprocess.run(
        softmax.command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent.name == softmax.key


def test_a_switch_turned_off_is_another_kernel(softmax: Built, cache: Path) -> None:
    """The ablation of a method is a rebuild: on the device by a tl.constexpr, on the host by a plain constant."""
    switches = ("RC_ONLINE_RECOMPUTATION", "RC_MORE_WARPS")
    assert all(BACKEND.has_switch((DATA / "softmax.py").read_text(), switch) for switch in switches)
    off = built(DATA / "softmax.py", replace(SOFTMAX, define=dict.fromkeys(switches, "0")), cache)
    assert off.key != softmax.key
    assert [k.num_warps for k in read_artifact(off.artifact).kernels] == [4]
    assert opcodes(softmax).count("FMNMX") > opcodes(off).count("FMNMX") == 0


def test_every_configuration_of_an_autotuned_kernel_is_compiled_and_the_choice_frozen(
    matmul: Built, cache: Path
) -> None:
    """Tuning inside the timing would be billed to the kernel, or differ from worker to worker."""
    artifact = read_artifact(matmul.artifact)
    assert BACKEND.needs_tuning(matmul)
    ((tuner, configs),) = artifact.tuners.items()
    assert len(configs) == 3
    # The third does not fit into shared memory: Triton's autotuner leaves it out, and so does the build.
    choices = [kernel.choice for kernel in (*artifact.kernels, *artifact.others)]
    assert [choice.config for choice in choices if choice is not None] == [0, 1, 0, 1]
    here, _, there, _ = (choice.key for choice in choices if choice is not None)
    chosen = {tuner: {here: 1, there: 0}}

    frozen = BACKEND.freeze(matmul, chosen, cache)
    assert isinstance(frozen, Built)
    assert not BACKEND.needs_tuning(frozen)
    (kernel,) = read_artifact(frozen.artifact).kernels
    assert (kernel.grid, kernel.num_stages) == ((4, 8, 1), 3)
    assert any(opcode.startswith("H") and "MMA" in opcode for opcode in opcodes(frozen))
    assert [k.choice.config for k in read_artifact(frozen.artifact).others if k.choice is not None] == [0]
    assert BACKEND.freeze(matmul, chosen, cache) == replace(frozen, cached=True, seconds=0.0)


@pytest.mark.parametrize("choices", [{}, {"TUNER": {}}, {"TUNER": {"k": 3}}, {"TUNER": {"k": -1}}, {"other": {"k": 0}}])
def test_choices_that_a_worker_made_up_are_refused(
    choices: Mapping[str, Mapping[str, int]], matmul: Built, cache: Path
) -> None:
    """They come from the candidate's own process."""
    (tuner,) = read_artifact(matmul.artifact).tuners
    result = BACKEND.freeze(matmul, {name.replace("TUNER", tuner): made for name, made in choices.items()}, cache)
    assert isinstance(result, Rejected)
    assert result.stage == "load"


TUNED_RUNS = """
import json, os, sys
from pathlib import Path
import torch
from backends import triton_standin as standin, triton_tensors as tensors
from backends.triton_runtime import Autotuning, load
for choices, inner in json.loads(sys.argv[2]):
    if os.fork() == 0:
        recorder = standin.Recorder(lambda: None)
        standin.install(standin.Device.of(90), recorder)
        tuning = Autotuning(choices)
        try:
            with tensors.elsewhere("meta"):
                run = load(Path(sys.argv[1], "kernel.py")).run_kernel
                a = torch.empty(512, 512, dtype=torch.bfloat16)
                for k in inner:
                    run(a=a, b=a, c=torch.empty(512, 512), M=512, N=512, K=k)
            print(json.dumps([len(recorder.launches), recorder.launches[-1].grid, tuning.chosen()]), flush=True)
        except RuntimeError as error:
            print(json.dumps(str(error)), flush=True)
        os._exit(0)
    os.wait()
"""


def test_a_frozen_autotuner_launches_what_was_chosen_and_nothing_else(matmul: Built) -> None:
    """A benchmark in the middle of a timed call would be the kernel's time."""
    artifact = read_artifact(matmul.artifact)
    choice = artifact.kernels[0].choice
    assert choice is not None
    second = {choice.tuner: {choice.key: 1}}
    runs = [(None, [512]), (second, [512, 512]), (second, [256])]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(matmul.artifact / "cache")}
    command = [sys.executable, "-c", TUNED_RUNS, str(matmul.artifact), json.dumps(runs)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    tuned, frozen, untuned = map(json.loads, done.stdout.splitlines())
    assert tuned[0] == 3  # both configurations that fit, then the chosen one
    assert tuned[2] == {choice.tuner: {choice.key: 0}}
    assert frozen == [2, [4, 8, 1], {}]
    assert "which it was not tuned for before timing" in untuned


def test_a_compile_error_shows_its_line_as_triton_prints_it(tmp_path: Path, cache: Path) -> None:
    """It is all that the next prompt has to repair the kernel with."""
    bad = COPY.replace("tl.load(x + at", "tl.load(x + missing")
    found = rejected(
        write(tmp_path, f"{bad}\ndef run_kernel(x, y, **_):\n    copy[(4,)](x, y, 9, BLOCK=16)\n"), SOFTMAX, cache
    )
    assert found.reason.startswith("kernel.py: ")
    assert "missing is not defined" in found.reason
    assert "tl.store(y + at, tl.load(x + missing, mask=at < n), mask=at < n)" in found.evidence
    assert str(cache) not in found.evidence


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("assert rows == 4096", "called with x[1, 1000], y[1, 1000], rows=1, cols=1000: kernel.py:12: AssertionError"),
        ("y.copy_(torch.softmax(x, -1))", "run_kernel launches no Triton kernel"),
        ("raise ValueError(f'{rows} rows')", "kernel.py:12: ValueError: 4096 rows"),
        ("assert x.sum().item() > 0", "values of tensors cannot be read here"),
    ],
)
def test_a_candidate_that_cannot_be_built_is_told_why_in_a_line(
    body: str, said: str, tmp_path: Path, cache: Path
) -> None:
    """A wrong kernel is a value that feeds the next prompt."""
    source = write(tmp_path, f"{COPY}\n\ndef run_kernel(x, y, rows, cols):\n    {body}\n")
    one = (replace(X, shape=(1, 1000)), replace(Y, shape=(1, 1000)), replace(ROWS, value=1), COLS)
    assert said in rejected(source, replace(SOFTMAX, elsewhere=(one,)), cache).reason


def test_a_candidate_that_fails_at_a_hidden_shape_is_not_told_which(tmp_path: Path, cache: Path) -> None:
    source = write(tmp_path, f"{COPY}\n\ndef run_kernel(x, y, rows, cols):\n    assert rows == 4096\n")
    one = (replace(X, shape=(1, 1000)), replace(Y, shape=(1, 1000)), replace(ROWS, value=1), COLS)
    found = rejected(source, replace(SOFTMAX, elsewhere=(one,), untold=1), cache)
    assert found.reason.startswith("called with a hidden shape: kernel.py:")
    assert "1000" not in found.reason


def test_a_kernel_that_builds_without_end_is_stopped(tmp_path: Path, cache: Path) -> None:
    """One endless loop at module level must not cost the night."""
    source = write(tmp_path, "while True:\n    pass\ndef run_kernel(**_): pass\n")
    assert rejected(source, replace(SOFTMAX, timeout_s=3.0), cache).reason == "exceeded 3 s"


def test_arithmetic_left_to_torch_is_refused_and_scratch_is_not(tmp_path: Path, cache: Path, softmax: Built) -> None:
    """A candidate that calls torch is not a faster kernel; one that allocates is honest."""
    body = (
        "s = torch.zeros_like(x)\n    copy[(9,)](x.view(-1)[4:], s, 9, BLOCK=16)\n    y.copy_(s.sum(0, keepdim=True))"
    )
    source = write(tmp_path, f"import ctypes\n{COPY}\ndef run_kernel(x, y, **_):\n    {body}\n")
    made = built(source, SOFTMAX, cache)
    assert "line 1: uses `ctypes`" in (BACKEND.refusal(made, ()) or "")
    assert BACKEND.refusal(made, ("ctypes",)) == "computes with torch (sum), which task.allow.libraries does not name"
    assert BACKEND.refusal(made, ("ctypes", "torch")) is None
    assert BACKEND.refusal(softmax, ()) is None


WRITES = """
import socket
def attempt(what):
    try:
        print("did", what())
    except OSError as error:
        print("kept from it")
attempt(lambda: open({outside!r}, "w"))
attempt(lambda: open({secret!r}).read())
attempt(lambda: socket.create_connection(("127.0.0.1", 9), 1))
attempt(lambda: open("own", "w").name)
raise SystemExit("enough")
def run_kernel(**_): pass
"""


def test_a_build_reaches_neither_the_network_nor_other_files(tmp_path: Path, cache: Path) -> None:
    """Building runs the model's code: it must not see or edit the harness, answers or the user's home."""
    if not all(walls.layers().values()):
        pytest.skip("this system grants no such walls")
    outside, secret = tmp_path / "outside", tmp_path / "secret"
    secret.write_text("4711", encoding="utf-8")
    found = rejected(write(tmp_path, WRITES.format(outside=str(outside), secret=str(secret))), SOFTMAX, cache)
    assert not outside.exists()
    assert found.reason == "kernel.py:12: SystemExit: enough"
    assert found.evidence.split("\n")[-4:] == [*["kept from it"] * 3, "did own"]


PLANTS = """
import os, pathlib, sys
cache = pathlib.Path(os.environ["TRITON_CACHE_DIR"])
(cache / "own").mkdir()
(cache / "own" / "kernel.cubin").symlink_to("/etc/hostname")
(cache / "own" / "__grp__kernel.json").write_text("[")
os.mkfifo(cache / "own" / "kernel.so")
"""


def test_what_a_build_plants_beside_triton_is_not_kept(tmp_path: Path, cache: Path) -> None:
    """Workers read a build as root, before their walls stand: a link would show a candidate the user's files."""
    body = "copy[(4,)](x, y, 9, BLOCK=16)\n    pathlib.Path(__file__).write_text('another program')"
    text = f"{PLANTS}\n{COPY}\ndef run_kernel(x, y, **_):\n    {body}\n"
    made = built(write(tmp_path, text), SOFTMAX, cache)
    assert [path.name for path in (made.artifact / "cache" / "own").iterdir()] == ["__grp__kernel.json"]
    assert (made.artifact / "kernel.py").read_text() == text


def test_without_a_target_the_message_says_what_is_missing(tmp_path: Path, cache: Path) -> None:
    """`device.arch` is what a machine without a GPU has to be told."""
    with pytest.raises(ToolchainError, match=r"need a target such as sm_90.*device.arch"):
        BACKEND.build(DATA / "softmax.py", replace(SOFTMAX, arch=""), cache)
