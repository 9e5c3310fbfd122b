"""The real GPU: facts that nvidia-smi confirms, ceilings that physics allows."""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest

from backends.types import ToolchainError
from profiling.ceilings import peak_bytes, peak_flops
from profiling.exclusive import exclusive_timing
from profiling.findings import Ceilings
from profiling.gpu_ceilings import ceilings_file, measure_gpu_ceilings
from profiling.gpu_device import GpuFacts, entries, find_gpu, sample

pytestmark = pytest.mark.gpu

# What this kind of GPU was measured at with torch's own kernels (driver 580, torch 2.11, 2026-11-30).
H200 = {"copy": 4.28e12, "read": 4.47e12, "bfloat16": 794e12, "tf32": 435e12, "float32": 51e12}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ceilings")


@pytest.fixture(scope="module")
def ceilings(gpu: GpuFacts, cache: Path) -> Ceilings:
    found = measure_gpu_ceilings(cache, gpu)
    for name, value in found.provenance.items():
        print(f"{name}: {value}")
    return found


def smi(fields: str) -> dict[str, dict[str, str]]:
    """By UUID, what nvidia-smi says."""
    if shutil.which("nvidia-smi") is None:
        pytest.skip("needs nvidia-smi")
    query = ["nvidia-smi", f"--query-gpu=uuid,{fields}", "--format=csv,nounits"]
    text = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    return {row["uuid"]: row for row in csv.DictReader(io.StringIO(text), skipinitialspace=True)}


def test_facts_are_those_of_nvidia_smi(gpu: GpuFacts) -> None:
    """A run on the wrong GPU, or with its clock misread, has a wrong roofline."""
    rows = smi("index,name,driver_version,compute_cap,clocks.max.sm,clocks.max.mem,memory.total")
    row = next(iter(rows.values())) if len(rows) == 1 else rows[gpu.uuid]
    assert (gpu.uuid, str(gpu.index), gpu.name) == (row["uuid"], row["index"], row["name"])
    assert gpu.driver_version == row["driver_version"]
    assert gpu.arch == "sm_" + row["compute_cap"].replace(".", "")
    assert gpu.max_sm_clock_hz == float(row["clocks.max.sm [MHz]"]) * 1e6
    assert gpu.memory_clock_hz == float(row["clocks.max.memory [MHz]"]) * 1e6
    assert gpu.memory_bytes == pytest.approx(float(row["memory.total [MiB]"]) * 2**20, rel=0.01)


def test_a_data_centre_gpu_tells_everything(gpu: GpuFacts) -> None:
    """What is None here takes a peak, a limit or a warning away from the user."""
    unknown = [field.name for field in fields(gpu) if getattr(gpu, field.name) is None]
    if "NVIDIA H" not in gpu.name:
        pytest.skip(f"{gpu.name} may know less: {unknown or 'nothing is missing'}")
    assert set(unknown) <= {"mps"}, "MPS cannot be told where NVML shows no processes"
    assert gpu.sm_count == {"NVIDIA H200": 132, "NVIDIA H100 80GB HBM3": 132}.get(gpu.name, gpu.sm_count)


def test_every_gpu_can_be_named_by_index_and_uuid(gpu: GpuFacts) -> None:
    uuids = [entry.uuid for entry in entries() if isinstance(entry, GpuFacts)]
    assert uuids.count(gpu.uuid) == 1
    assert find_gpu(gpu.uuid) == gpu
    with pytest.raises(ToolchainError, match=gpu.uuid):
        find_gpu(len(uuids))


def test_visible_devices_are_honoured(gpu: GpuFacts) -> None:
    code = "from profiling.gpu_device import find_gpu; print(find_gpu(0).uuid)"
    last = entries()[-1]
    assert isinstance(last, GpuFacts), last

    def found(setting: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": setting}
        return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)

    assert found(f"{last.index},{gpu.index}").stdout.strip() == last.uuid
    assert found(last.uuid[:12]).stdout.strip() == last.uuid
    assert "device.gpus: GPU 0 is not there" in found("").stderr


def test_the_controller_opens_no_cuda_context(gpu: GpuFacts) -> None:
    """A controller that called cuInit could fork no worker, and would hold memory on the GPU all night."""
    code = (
        "import ctypes\nfrom profiling.gpu_device import find_gpu, sample\n"
        "sample(find_gpu(0).uuid)\n"
        "context = ctypes.c_void_p()\n"
        "print(ctypes.CDLL('libcuda.so.1').cuCtxGetCurrent(ctypes.byref(context)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "3\n", "CUDA_ERROR_NOT_INITIALIZED is what an untouched CUDA says"


def test_a_sample_sees_the_gpu_at_work(gpu: GpuFacts) -> None:
    """Clock, heat and power are kept with every timing."""
    now = sample(gpu.uuid)
    assert now.sm_clock_hz is not None
    assert gpu.max_sm_clock_hz is not None
    assert 0 < now.sm_clock_hz <= gpu.max_sm_clock_hz
    assert now.temperature_c is not None
    assert 0 < now.temperature_c < 110
    assert now.power_w is not None
    assert now.throttle is not None
    code = (
        "import torch, sys\n"
        "a = torch.randn(8192, 8192, device='cuda', dtype=torch.bfloat16)\n"
        "for _ in range(2000): b = a @ a\n"
        "print('busy', flush=True)\n"
        "torch.cuda.synchronize()\n"
    )
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu.uuid}
    child = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "busy\n"
        powers: list[float] = []
        while child.poll() is None and len(powers) < 20:
            powers.append(sample(gpu.uuid).power_w or 0.0)
            time.sleep(0.05)
        assert max(powers) > now.power_w
    finally:
        child.kill()
        child.communicate()


def test_ceilings_are_complete_and_below_the_chips_own_peaks(gpu: GpuFacts, ceilings: Ceilings) -> None:
    """A rate above the peak was measured on work that was not done; a missing one leaves a kernel without a floor."""
    assert ceilings.provenance["missing"] == ""
    major = int(gpu.arch.removeprefix("sm_")[:-1])
    wanted = {"float32", "float64", "float16"} | ({"tf32", "bfloat16", "int8"} if major >= 8 else set())
    assert set(ceilings.flops) >= wanted | ({"float8"} if major >= 9 else set())
    for dtype, rate in ceilings.flops.items():
        peak = peak_flops(ceilings, dtype, theoretical=True)
        assert peak is not None
        assert 0.3 * peak < rate <= peak, dtype
    assert 0.6 * ceilings.theoretical_bytes < peak_bytes(ceilings) <= ceilings.theoretical_bytes
    assert ceilings.cache_bytes is not None
    assert ceilings.cache_bytes > ceilings.read_bytes


def test_an_h200_measures_what_others_of_its_kind_did(gpu: GpuFacts, ceilings: Ceilings) -> None:
    if gpu.name != "NVIDIA H200":
        pytest.skip(f"known numbers are an H200's, this is {gpu.name}")
    found = {"copy": ceilings.copy_bytes, "read": ceilings.read_bytes, **ceilings.flops}
    for name, known in H200.items():
        # torch's float32 product reaches three quarters of the FMA pipes; a cool chip beats a hot one's tensor rate.
        assert 0.9 * known < found[name] < (1.4 if name in ("float32", "bfloat16", "tf32") else 1.1) * known, name


def test_a_second_call_measures_nothing(gpu: GpuFacts, ceilings: Ceilings, cache: Path) -> None:
    """Another run on the same GPU starts at once; so does one while the GPU is being timed."""
    before = ceilings_file(cache, gpu).stat().st_mtime_ns
    with exclusive_timing(gpu=gpu.uuid):
        assert measure_gpu_ceilings(cache, gpu).flops == ceilings.flops
    assert ceilings_file(cache, gpu).stat().st_mtime_ns == before
