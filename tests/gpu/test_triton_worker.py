"""Triton kernels on the real GPU: what a user loses when a worker times, binds or tunes them wrongly."""

from __future__ import annotations

import os
import random
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from backends.triton import TritonBackend
from backends.types import BuildSpec, Built
from profiling.exclusive import exclusive_timing
from profiling.gpu_device import GpuFacts
from profiling.harness.arena import Arena, Layout, RandomBytes
from profiling.harness.launcher import Launcher
from profiling.harness.memory import Gpu
from profiling.harness.triton_launcher import (
    TritonLauncher,
    Tuning,
    build_library,
    profiled_command,
    profiled_environment,
)
from profiling.harness.worker import CandidateFailure, Reply, Worker
from profiling.triton_binding import bind_arguments
from profiling.types import Limits

pytestmark = pytest.mark.gpu

DATA = Path(__file__).resolve().parents[1] / "data" / "triton"
BACKEND = TritonBackend()
SOFTMAX, MATMUL = {"rows": 4096, "cols": 1000}, {"M": 512, "N": 512, "K": 512}
Inputs = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Place:
    """Where the tests run."""

    gpu: GpuFacts
    device: Gpu
    cache: Path
    library: Path
    launcher: TritonLauncher


@pytest.fixture(scope="module")
def place(gpu: GpuFacts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu.uuid
    cache = tmp_path_factory.mktemp("builds")
    library = build_library(cache)
    launcher = TritonLauncher(library, gpu.arch, cache, {"CUDA_VISIBLE_DEVICES": gpu.uuid})
    yield Place(gpu, Gpu(gpu.uuid), cache, library, launcher)
    launcher.close()
    torch.set_default_device(None)


@pytest.fixture(autouse=True)
def turn(gpu: GpuFacts) -> Iterator[None]:
    """Workers that a test starts itself take no turn, and would be billed to whatever is timed beside them."""
    with exclusive_timing(gpu=gpu.uuid):
        yield


def build(source: Path, dims: Mapping[str, int], place: Place, *checks: Mapping[str, int]) -> Built:
    timed, *others = BACKEND.describe_all(source, (dims, *checks), 120.0)
    spec = BuildSpec(arch=place.gpu.arch, arguments=timed, elsewhere=tuple(others))
    made = BACKEND.build(source, spec, place.cache)
    assert isinstance(made, Built), made
    return made


def layout_of(source: Path, dims: Mapping[str, int], place: Place) -> Layout:
    case = bind_arguments(BACKEND.describe(source, dims, 120.0), dims, None, {})
    return Layout.of(case, place.device.align, place.device.gap)


def draw(layout: Layout) -> Inputs:
    return {
        t.name: torch.randn(t.shape, device="cuda").to(getattr(torch, t.dtype))
        for t in layout.case.tensors
        if t.role == "in"
    }


def serve(
    made: Built,
    layouts: Sequence[Layout],
    place: Place,
    check: Callable[[Inputs, Inputs], None],
    *,
    slots: int = 1,
    launcher: Launcher | None = None,
) -> list[Reply]:
    """One worker, bound to each of `layouts` in turn; `check` gets the inputs and outputs of each call."""
    room = max(layout.slot_bytes for layout in layouts)
    arena = Arena(layouts[0], slots, RandomBytes(random.Random(0)), place.device, room)
    cores = sorted(os.sched_getaffinity(0))[:8]
    replies = []
    worker = Worker(launcher or place.launcher, made.artifact, arena, cores, Limits(call_s=60.0), named=True)
    try:
        worker.ready()
        for turn, layout in enumerate(layouts):
            count = slots if turn == 0 else 1
            if turn > 0:
                arena.rebind(layout, 1)
                worker.rebind(arena)
            drawn = [draw(layout) for _ in range(count)]
            for slot, inputs in enumerate(drawn):
                arena.stage(slot, inputs)
            place.device.settle()
            replies.append(worker.run(0, count, "a test"))
            for slot, inputs in enumerate(drawn):
                assert arena.damage(slot) is None
                check(inputs, arena.outputs(slot))
    finally:
        worker.kill()
        arena.close()
    return replies


def is_softmax(inputs: Inputs, outputs: Inputs) -> None:
    torch.testing.assert_close(outputs["y"], torch.softmax(inputs["x"], -1))


def is_product(inputs: Inputs, outputs: Inputs) -> None:
    wanted = inputs["a"].double() @ inputs["b"].double()
    torch.testing.assert_close(outputs["c"].double(), wanted, atol=1e-2, rtol=1e-2)


def test_every_call_of_a_frame_computes_on_its_own_data(place: Place) -> None:
    """Right answers are checked slot by slot; a time is only worth something beside them."""
    layouts = [layout_of(DATA / "softmax.py", SOFTMAX, place)]
    (reply,) = serve(build(DATA / "softmax.py", SOFTMAX, place), layouts, place, is_softmax, slots=3)
    for call in reply.calls:
        assert call.code == 0
        assert 0 < call.event_nanoseconds <= call.nanoseconds


def test_one_worker_is_checked_at_other_shapes_too(place: Place) -> None:
    """Check dims find kernels that are right at the timed shape alone; the worker can compile nothing for them."""
    dims = (SOFTMAX, {"rows": 127, "cols": 33}, {"rows": 1, "cols": 4096})
    made = build(DATA / "softmax.py", dims[0], place, *dims[1:])
    assert len(serve(made, [layout_of(DATA / "softmax.py", d, place) for d in dims], place, is_softmax)) == 3


def test_the_gpu_chooses_among_configurations_once_and_workers_keep_to_it(place: Place) -> None:
    """Tuning inside the timing would be billed to the kernel."""
    source, check = DATA / "matmul.py", {"M": 128, "N": 64, "K": 96}
    made = build(source, MATMUL, place, check)
    layouts = [layout_of(source, dims, place) for dims in (MATMUL, check)]
    assert BACKEND.needs_tuning(made)
    with pytest.raises(CandidateFailure, match="which it was not tuned for before timing"):
        serve(made, layouts, place, is_product)
    tuning = Tuning(place.launcher)
    serve(made, layouts, place, is_product, launcher=tuning)
    choices = tuning.chosen()
    tuning.close()
    (chosen,) = choices.values()
    assert len(chosen) == 2
    assert set(chosen.values()) <= {0, 1}  # the third does not fit
    frozen = BACKEND.freeze(made, choices, place.cache)
    assert isinstance(frozen, Built)
    serve(frozen, layouts, place, is_product)


BAD = {
    "raises": ("raise ValueError('no such luck')", r"kernel.py:\d+: ValueError: no such luck in a test"),
    "faults": ("softmax_kernel[(rows,)](x, y, cols + (1 << 28), BLOCK=1024, num_warps=8)", "CUDA error"),
    "compiles": ("softmax_kernel[(rows,)](x, y, cols, BLOCK=2048)", r"kernel.py:\d+: .*was not compiled for"),
    "ends": ("import os; os._exit(0)", "ended its process with status 0 in a test"),
}


@pytest.mark.parametrize("how", sorted(BAD))
def test_a_candidate_that_fails_ends_itself_and_nothing_else(how: str, place: Place, tmp_path: Path) -> None:
    """A poisoned context or a crash costs one candidate, with the reason for its next prompt."""
    body, said = BAD[how]
    text = (DATA / "softmax.py").read_text()
    source = tmp_path / "bad.py"
    # Built, where CUDA is not initialised, it behaves; in a worker it does not.
    source.write_text(f"{text}    if torch.cuda.is_initialized():\n        {body}\n")
    made = build(source, SOFTMAX, place)
    layouts = [layout_of(DATA / "softmax.py", SOFTMAX, place)]
    with pytest.raises(CandidateFailure, match=said):
        serve(made, layouts, place, is_softmax)
    serve(build(DATA / "softmax.py", SOFTMAX, place), layouts, place, is_softmax)


def test_a_profiler_can_run_one_call_of_each_kernel_it_is_given(place: Place, tmp_path: Path) -> None:
    """ncu is started once, and every kernel has a process of its own under it."""
    made = build(DATA / "softmax.py", SOFTMAX, place)
    layout = layout_of(DATA / "softmax.py", SOFTMAX, place)
    arena = Arena(layout, 1, RandomBytes(random.Random(0)), place.device)
    arena.stage(0, draw(layout))
    place.device.settle()
    setup = layout.setup(0, 1, (0,), named=True)
    bundle = tmp_path / "bundle"
    bundle.write_bytes(struct.pack("=Q", len(setup)) + setup + arena.image(0))
    arena.close()
    command = profiled_command(place.library, place.gpu.arch, bundle, place.gpu.uuid)
    environment = {**os.environ, **profiled_environment(place.cache), "CUDA_VISIBLE_DEVICES": place.gpu.uuid}
    asked = f"{made.artifact}\n{tmp_path / 'missing'}\n{made.artifact}\n"
    done = subprocess.run(command, input=asked, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["0", "70", "0"], done.stderr
