"""Triton workers as far as they go without a GPU; `tests/gpu/test_triton_worker.py` has them run kernels."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from backends.triton import TritonBackend
from backends.types import Argument, BuildSpec, Built
from profiling.harness.arena import Layout
from profiling.harness.launcher import Inherited
from profiling.harness.triton_kernel import Bound, Setup, bind, outputs
from profiling.harness.triton_launcher import TritonLauncher, Tuning, build_library
from profiling.triton_binding import bind_arguments
from profiling.types import HarnessFault

ROOT = Path(__file__).resolve().parents[3]
ARGUMENTS = (
    Argument("x", "float32", (64, 40), None, output=False),
    Argument("y", "float32", (64, 40), None, output=True),
    Argument("rows", "int64", None, 64, output=False),
    Argument("cols", "int64", None, 40, output=False),
)
LAYOUT = Layout.of(bind_arguments(ARGUMENTS, {"rows": 64, "cols": 40}, None, {}), align=256, gap=0)


def test_a_worker_reads_the_setup_frame_that_the_oracle_writes() -> None:
    """Another offset would be another call's data, and an int in a float's place another kernel."""
    setup = Setup.parse(LAYOUT.setup(token=7, slots=3, cores=(2, 5), named=True))
    assert (setup.token, setup.slots, setup.slot_bytes, setup.cores) == (7, 3, LAYOUT.slot_bytes, (2, 5))
    x, y = LAYOUT.places
    assert setup.arguments == (
        Bound("x", "float32", (64, 40), None, x.offset, 64 * 40 * 4, True),
        Bound("y", "float32", (64, 40), None, y.offset, 64 * 40 * 4, False),
        Bound("rows", "int64", None, 64, 64, 0, True),
        Bound("cols", "int64", None, 40, 40, 0, True),
    )
    assert outputs(setup, 1 << 20) == [[((1 << 20) + i * LAYOUT.slot_bytes + y.offset, 64 * 40 * 4)] for i in range(3)]
    values = (Bound("eps", "float64", None, 1, 0, 0, True), Bound("causal", "bool", None, 1, 0, 0, True))
    scalars = Setup(0, 1, 0, values, (), apart=False)
    assert repr(bind(scalars, base=0)) == "[{'eps': 1.0, 'causal': True}]"
    with pytest.raises(ValueError, match="Expecting value"):
        Setup.parse(LAYOUT.setup(token=7, slots=3, cores=(2, 5)))


def test_under_a_sanitizer_a_worker_learns_where_each_tensor_ends_and_which_it_must_write() -> None:
    """One byte more, and an overrun by one element stays in memory that is the kernel's."""
    setup = Setup.parse(LAYOUT.setup_apart(cores=(2,), named=True))
    x, y = LAYOUT.places
    assert setup.apart
    assert [(a.offset, a.size, a.written) for a in setup.arguments[:2]] == [
        (x.offset, 64 * 40 * 4, True),
        (y.offset, 64 * 40 * 4, False),
    ]


# The parent's own rule, that nothing may compile, and a driver that makes no launch.
FROM_COPY = """
import sys
from pathlib import Path
import torch
from triton.backends.nvidia import compiler
from backends import triton_standin as standin, triton_tensors as tensors
from profiling.harness.triton_kernel import Image, Kernel
from profiling.harness.triton_zygote import refuse_to_compile
artifact, folder = map(Path, sys.argv[1:])
image = Image(artifact)
image.write(folder)
recorder = standin.Recorder(lambda: None)
standin.install(standin.Device.of(90), recorder)
compiler.CUDABackend.add_stages = refuse_to_compile
with tensors.elsewhere("meta"):
    kernel = Kernel(folder, image.artifact, tunes=False)
    for cols in (40, 33, 48):
        x = torch.empty(64, cols)
        kernel.calls({"x": x, "y": x, "rows": 64, "cols": cols})()
        print(len(recorder.launches), recorder.launches[-1].grid, flush=True)
"""


def test_a_workers_private_copy_of_a_build_is_all_it_needs(tmp_path: Path) -> None:
    """Its walls let it start no compiler: what is not found in the copy would end every candidate."""
    check = tuple(replace(a, value=33) if a.name == "cols" else a for a in ARGUMENTS)
    spec = BuildSpec(arch="sm_90", arguments=ARGUMENTS, elsewhere=(check,))
    source = ROOT / "tests" / "data" / "triton" / "softmax.py"
    made = TritonBackend().build(source, spec, tmp_path / "builds")
    assert isinstance(made, Built)
    command = [sys.executable, "-c", FROM_COPY, str(made.artifact), str(tmp_path / "copy")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.stdout == "1 (64, 1, 1)\n2 (64, 1, 1)\n", done.stderr
    # 48 columns are a multiple of 16: another specialisation.
    assert done.returncode == 71
    last = done.stderr.splitlines()[-1]
    assert last.startswith("kernel.py:30: RuntimeError: a kernel is launched with argument types")
    copied = {path.suffix for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    assert copied == {".py", ".json", ".cubin"}


LATER = """
    if cols == 33:
        torch.mm(x, x.T)
"""


def test_torchs_arithmetic_is_found_in_the_call_that_does_it(tmp_path: Path) -> None:
    """What was honest while it was built may not be afterwards."""
    source = tmp_path / "kernel.py"
    source.write_text((ROOT / "tests" / "data" / "triton" / "softmax.py").read_text() + LATER)
    made = TritonBackend().build(source, BuildSpec(arch="sm_90", arguments=ARGUMENTS), tmp_path / "builds")
    assert isinstance(made, Built)
    command = [sys.executable, "-c", FROM_COPY, str(made.artifact), str(tmp_path / "copy")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (71, "1 (64, 1, 1)\n")
    assert done.stderr.splitlines()[-1] == "computes with torch (mm), which it did not while it was built"


def test_a_machine_without_a_driver_is_named_as_the_reason(tmp_path: Path) -> None:
    """It is the environment's fault, and no candidate's."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("this machine has an NVIDIA driver")
    launcher = TritonLauncher(build_library(tmp_path), "sm_90", tmp_path, {})
    tuning = Tuning(launcher)
    with pytest.raises(HarnessFault, match=r"Triton cannot run kernels here: .*libcuda"):
        tuning.launch(tmp_path / "kernel", Inherited(0, 0), 1)
    assert tuning.chosen() == {}
    tuning.close()
    launcher.close()
