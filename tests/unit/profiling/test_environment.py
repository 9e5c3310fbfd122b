"""The environment page: what a user reads to learn why a run is degraded and what to do."""

from __future__ import annotations

import shutil

import pytest
from pydantic import TypeAdapter

from profiling.counters import CounterSource, counter_source
from profiling.environment import Environment, inspect_environment, to_markdown

PERF = CounterSource("perf", "")


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
