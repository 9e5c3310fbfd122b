"""Which GPU a run means, what it is, and what a user reads where there is none that works."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from backends.types import ToolchainError
from profiling.gpu_device import GpuFacts, GpuSample, arch_warning, choose
from tests.unit.profiling.gpu_driver import H200, RUBBISH, build_driver, needs_compiler, run_with_driver

FIND = """
import dataclasses, json
from profiling.gpu_device import find_gpu
print(json.dumps(dataclasses.asdict(find_gpu({!r}))))
"""
SAMPLE = """
from pydantic import TypeAdapter
from profiling.gpu_device import GpuSample, sample
print(TypeAdapter(GpuSample).dump_json(sample({!r})).decode())
"""
GPUS = tuple(GpuFacts(i, f"GPU-{letter * 8}-0000", f"chip {letter}", "sm_90") for i, letter in enumerate("abc"))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("driver"))


@needs_compiler
def test_a_gpu_is_described_in_full(driver: Path) -> None:
    """Ceilings, locks, prompts and reports rest on these facts."""
    (gpu,) = TypeAdapter(list[GpuFacts]).validate_json(f"[{run_with_driver(driver, FIND.format(0))}]")
    assert gpu == GpuFacts(
        index=0,
        uuid=H200,
        name="NVIDIA H200",
        arch="sm_90",
        driver_version="580.65.06",
        cuda_version="13.0",
        memory_bytes=150754820096,
        max_sm_clock_hz=1980e6,
        memory_clock_hz=3201e6,
        memory_bus_bits=6144,
        power_limit_w=700.0,
        sm_count=132,
        l2_bytes=62914560,
        shared_per_block_bytes=232448,
        shared_per_sm_bytes=233472,
        registers_per_sm=65536,
        threads_per_sm=2048,
        mig=False,
        mps=False,
        ecc=True,
        persistence=False,
    )


@needs_compiler
def test_what_a_driver_does_not_tell_is_unknown_and_a_lost_gpu_keeps_its_number(driver: Path) -> None:
    """A clock of 0 MHz would make every kernel faster than the chip; a shifted index would time the wrong one."""
    rubbish = json.loads(run_with_driver(driver, FIND.format(RUBBISH[:12])))
    assert (rubbish["index"], rubbish["uuid"], rubbish["name"], rubbish["arch"]) == (
        2,
        RUBBISH,
        "unnamed GPU",
        "sm_120",
    )
    told = {"index", "uuid", "name", "arch", "driver_version", "cuda_version"}
    assert {name: value for name, value in rubbish.items() if name not in told and value is not None} == {}
    assert "fell off the bus" in run_with_driver(driver, FIND.format(1))


@needs_compiler
def test_visible_devices_decide_what_an_index_means(driver: Path) -> None:
    """On a shared machine the scheduler says which GPU is ours."""
    assert json.loads(run_with_driver(driver, FIND.format(0), CUDA_VISIBLE_DEVICES="2,0"))["uuid"] == RUBBISH
    hidden = run_with_driver(driver, FIND.format(0), CUDA_VISIBLE_DEVICES="")
    assert hidden == "ToolchainError: device.gpus: GPU 0 is not there; visible through CUDA_VISIBLE_DEVICES=: none"
    assert "is not there" in run_with_driver(driver, FIND.format(H200), CUDA_VISIBLE_DEVICES="2")


@pytest.mark.parametrize(
    ("selector", "setting", "expected"),
    [
        (2, None, 2),
        ("GPU-bbbb", None, 1),
        ("GPU-BBBB", None, 1),
        (1, "2,1,0", 1),
        (0, "GPU-cc, 0", 2),
        ("GPU-a", "1,0", 0),
    ],
)
def test_a_gpu_is_found_by_index_and_by_uuid(selector: int | str, setting: str | None, expected: int) -> None:
    assert choose(selector, GPUS, setting) == GPUS[expected]


@pytest.mark.parametrize(
    ("selector", "setting", "says"),
    [
        (3, None, "GPU 3 is not there; visible: 0: chip a"),
        (-1, None, "GPU -1 is not there"),
        ("GPU-", None, "is named by 3 GPUs"),
        ("chip a", None, "is not there"),
        (1, "0,9,2", "visible through CUDA_VISIBLE_DEVICES=0,9,2: 0: chip a"),
        (0, "NoDevFiles", "none"),
        (0, "MIG-1234", "none"),
        (0, "-1", "none"),
        ("GPU-a", "1", "0: chip b"),
    ],
)
def test_a_gpu_that_is_not_there_is_an_error_that_lists_those_that_are(
    selector: int | str, setting: str | None, says: str
) -> None:
    with pytest.raises(ToolchainError, match=r"device\.gpus") as caught:
        choose(selector, GPUS, setting)
    assert says in str(caught.value)


@needs_compiler
@pytest.mark.parametrize(
    ("macro", "says"),
    [
        ("INIT=9", "modprobe nvidia"),
        ("INIT=18", "differ in version: reboot"),
        ("INIT=4", "rights of /dev/nvidia*"),
        ("INIT=999", "look at `nvidia-smi`"),
        ("COUNT=0", "sees no GPU"),
        ("CU_INIT=802", "GPU 0 (NVIDIA H200): CUDA does not start (CUDA_ERROR_SYSTEM_NOT_READY): start the service"),
        ("CU_INIT=999", "CUDA does not start (error 999)"),
    ],
)
def test_a_driver_that_does_not_work_is_named_with_what_to_do(tmp_path: Path, macro: str, says: str) -> None:
    said = run_with_driver(build_driver(tmp_path, macro), FIND.format(0))
    assert said.startswith("ToolchainError: ")
    assert says in said
    assert "\n" not in said


def test_a_machine_without_a_driver_says_so() -> None:
    if subprocess.run(["/bin/sh", "-c", "ldconfig -p | grep -q libnvidia-ml.so.1"], check=False).returncode == 0:
        pytest.skip("there is a driver here")
    said = run_with_driver(None, FIND.format(0))
    assert said.startswith("ToolchainError: no NVIDIA driver is installed here")
    assert "--gpus all" in said


@needs_compiler
def test_a_sample_tells_clock_heat_power_and_what_holds_it_back(driver: Path) -> None:
    """Samples are kept or dropped by this: a power cap is a steady state, heat is not."""
    found = TypeAdapter(GpuSample).validate_json(run_with_driver(driver, SAMPLE.format(H200)))
    assert found == GpuSample(1455e6, 3201e6, 61, 699.5, ("power cap",), ())
    assert found.disturbed is False
    unknown = TypeAdapter(GpuSample).validate_json(run_with_driver(driver, SAMPLE.format(RUBBISH)))
    assert unknown == GpuSample(None, None, None, None, None, None)
    assert unknown.disturbed is None
    assert run_with_driver(driver, SAMPLE.format("GPU-0")).startswith("ToolchainError: GPU GPU-0: ")


@pytest.mark.parametrize("reason", ["thermal", "hardware thermal", "power brake", "hardware slowdown"])
def test_heat_and_the_hardware_brake_disturb(reason: str) -> None:
    assert GpuSample(None, None, None, None, ("power cap", reason), None).disturbed


@needs_compiler
def test_others_on_the_gpu_are_told_from_ourselves(tmp_path: Path) -> None:
    """Our own workers must not look like a stranger's job, and a stranger's must not pass for ours."""
    busy = build_driver(tmp_path, "BUSY=1")
    found = TypeAdapter(GpuSample).validate_json(run_with_driver(busy, SAMPLE.format(H200)))
    assert found.foreign == (1,)
    assert json.loads(run_with_driver(busy, FIND.format(0)))["mps"] is True


@pytest.mark.parametrize("arch", ["auto", "sm_90", "sm_90a"])
def test_the_gpus_own_architecture_needs_no_warning(arch: str) -> None:
    assert arch_warning(GPUS[0], arch) is None


@pytest.mark.parametrize("arch", ["sm_80", "sm_100a", "sm_9"])
def test_another_architecture_is_warned_of(arch: str) -> None:
    warning = arch_warning(GPUS[0], arch)
    assert warning is not None
    assert arch in warning
    assert "sm_90" in warning
    assert "device.arch: auto" in warning
