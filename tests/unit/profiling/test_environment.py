"""The environment page: what a user reads to learn why a run is degraded and what to do."""

from __future__ import annotations

import importlib.metadata
import shutil
from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from profiling.counters import CounterSource, counter_source
from profiling.environment import Environment, NcuCounters, Shortfall, inspect_environment, to_markdown
from profiling.gpu_device import GpuFacts, GpuSample

PERF = CounterSource("perf", "")
NCU = NcuCounters(None)
GPU = GpuFacts(
    index=1, uuid="GPU-1234", name="NVIDIA H200", arch="sm_90", driver_version="580.65.06", cuda_version="13.0",
    memory_bytes=141 << 30, max_sm_clock_hz=1980e6, sm_count=132, l2_bytes=60 << 20, power_limit_w=700.0,
    shared_per_block_bytes=227 << 10, mig=False, mps=False, ecc=True, persistence=True,
)  # fmt: skip
QUIET = GpuSample(345e6, 3201e6, 31, 75.2, ("idle",), ())


def test_it_survives_json() -> None:
    """`env.json` of a run is read again on resume."""
    env = inspect_environment({"g++": "g++ 12.2"}, counter_source(), {"network": True})
    adapter = TypeAdapter(Environment)
    assert adapter.validate_json(adapter.dump_json(env)) == env


def test_it_names_the_versions_that_made_the_numbers() -> None:
    env = inspect_environment({"g++": "g++ 12.2"}, PERF, {})
    assert env.versions["g++"] == "g++ 12.2"
    for name in ("python", "kernel"):
        assert env.versions[name]
    for tool in ("objdump", "perf", "valgrind"):
        if shutil.which(tool) is None:
            assert env.versions[tool] is None
    assert "g++ 12.2" in to_markdown(env)


def test_what_the_backend_said_of_a_tool_is_not_asked_again() -> None:
    assert inspect_environment({"objdump": "objdump 9"}, PERF, {}).versions["objdump"] == "objdump 9"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (CounterSource("cachegrind", "perf may not read counters (paranoid 4)"), "simulated"),
        (CounterSource("counted", "perf is not installed; valgrind is not installed"), "only counted work"),
    ],
)
def test_missing_counters_come_with_cost_reason_and_remedy(source: CounterSource, expected: str) -> None:
    env = inspect_environment({}, source, {})
    assert not env.can_read_counters
    found = next(s for s in env.shortfalls if "hardware counters" in s.what)
    assert expected in found.what
    assert found.remedy
    page = to_markdown(env)
    assert source.reason in page
    assert found.remedy in page


def test_a_refused_counter_names_the_kernel_setting() -> None:
    if shutil.which("perf") is None:
        pytest.skip("without perf the remedy is to install it")
    env = inspect_environment({}, CounterSource("cachegrind", "perf may not read counters (limited)"), {})
    assert any("perf_event_paranoid" in s.remedy for s in env.shortfalls)


def test_hardware_counters_need_no_remedy() -> None:
    env = inspect_environment({}, PERF, {})
    assert env.can_read_counters
    assert not any("counters" in s.what for s in env.shortfalls)


def test_a_missing_sandbox_layer_is_named() -> None:
    """A run whose walls are thinner than believed must say so."""
    env = inspect_environment({}, PERF, {"network": True, "own uid": False, "seccomp": False})
    (found,) = [s for s in env.shortfalls if "sandbox" in s.what]
    assert "own uid, seccomp" in found.what
    assert "network" not in found.what
    assert "| seccomp | no |" in to_markdown(env)
    full = inspect_environment({}, PERF, {"network": True})
    assert not any("sandbox" in s.what for s in full.shortfalls)


def test_a_pipe_in_a_version_does_not_break_the_table() -> None:
    env = inspect_environment({"cc": "odd | name"}, PERF, {})
    assert "| cc | odd \\| name |" in to_markdown(env)


def test_the_gpu_is_on_the_page_and_survives_json() -> None:
    env = inspect_environment({}, NCU, {}, GPU, QUIET)
    adapter = TypeAdapter(Environment)
    assert adapter.validate_json(adapter.dump_json(env)) == env
    page = to_markdown(env)
    for shown in ("1: NVIDIA H200 (sm_90), `GPU-1234`", "580.65.06, for CUDA up to 13.0", "132, up to 1980 MHz",
                  "141 GiB, L2 60 MiB", "227 KiB per block, unknown per SM", "ECC on", "345 MHz, 31 °C, 75 W",
                  "Counters: **ncu**."):  # fmt: skip
        assert shown in page, shown


def test_an_old_log_without_a_gpu_is_still_read() -> None:
    """Runs made before GPUs were supported can be resumed."""
    adapter = TypeAdapter(Environment)
    old = adapter.dump_python(inspect_environment({}, PERF, {}), mode="json")
    for key in ("gpu", "gpu_now"):
        del old[key]
    assert adapter.validate_python(old).gpu is None


def test_a_gpu_that_nothing_ails_has_no_shortfall_of_its_own() -> None:
    env = inspect_environment({"cuobjdump": "13.0", "compute-sanitizer": "2025.3"}, NCU, {}, GPU, QUIET)
    assert env.can_read_counters
    assert [s.what for s in env.shortfalls if "usable core" not in s.what] == []


@pytest.mark.parametrize(
    ("gpu", "now", "what", "remedy"),
    [
        (replace(GPU, mig=True), QUIET, "MIG is on", "nvidia-smi -i 1 -mig 0"),
        (replace(GPU, mps=True), QUIET, "MPS is on", "nvidia-cuda-mps-control"),
        (replace(GPU, ecc=False), QUIET, "ECC is off", "nvidia-smi -i 1 -e 1"),
        (replace(GPU, persistence=False), QUIET, "persistence mode is off", "nvidia-smi -i 1 -pm 1"),
        (GPU, replace(QUIET, foreign=(77, 78)), "process ids 77, 78", "device.gpus"),
        (GPU, replace(QUIET, throttle=("hardware thermal",)), "slowed down (hardware thermal)", "cooling"),
    ],
)
def test_what_ails_a_gpu_comes_with_a_remedy(gpu: GpuFacts, now: GpuSample, what: str, remedy: str) -> None:
    """Somebody else's job on the GPU, or a hot one, explains a night without gains."""
    env = inspect_environment({"cuobjdump": "13.0", "compute-sanitizer": "2025.3"}, NCU, {}, gpu, now)
    (found,) = [s for s in env.shortfalls if "usable core" not in s.what]
    assert what in found.what
    assert remedy in found.remedy
    assert found.what in to_markdown(env)


def test_what_is_unknown_of_a_gpu_is_no_shortfall() -> None:
    """A GPU that has no ECC must not be told to turn it on."""
    bare = GpuFacts(0, "GPU-1", "NVIDIA GeForce", "sm_120")
    env = inspect_environment({"cuobjdump": "13.0", "compute-sanitizer": "2025.3"}, NCU, {}, bare)
    assert [s.what for s in env.shortfalls if "usable core" not in s.what] == []
    assert "MIG unknown" in to_markdown(env)


def test_gpu_counters_that_cannot_be_read_degrade_the_run_and_say_how_to_mend_it() -> None:
    fault = Shortfall("ncu may not read the counters (ERR_NVGPUCTRPERM)", "run as root; or --cap-add=SYS_ADMIN")
    env = inspect_environment({}, NcuCounters(fault), {}, GPU, QUIET)
    assert (env.counters, env.counters_reason, env.can_read_counters) == ("none", fault.what, False)
    (found,) = [s for s in env.shortfalls if "counters" in s.what]
    assert "degraded" in found.what
    assert fault.remedy in to_markdown(env)


def test_the_gpu_page_names_the_tools_and_libraries_that_made_the_numbers() -> None:
    env = inspect_environment({"nvcc": "12.9"}, NCU, {}, GPU, QUIET)
    assert env.versions["nvcc"] == "12.9", "what the backend said is not asked again"
    assert env.versions["torch"] == importlib.metadata.version("torch")
    assert env.versions["triton"] == importlib.metadata.version("triton")
    for tool in ("ncu", "compute-sanitizer", "cuobjdump"):
        version = env.versions[tool]
        assert version is None or version[0].isdigit(), "a version, not the first line of a banner"
    assert "perf" not in env.versions
    assert "ncu" not in inspect_environment({}, PERF, {}).versions
