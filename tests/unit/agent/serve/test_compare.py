"""Two runs side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent import events as ev
from agent.serve.catalog import Catalog
from agent.serve.compare import Comparison, compare, config_rows
from tests.unit.agent import event_log
from tests.writer import all_events, write_run


def compared(root: Path) -> Comparison:
    catalog = Catalog(root)
    catalog.refresh()
    a, b = catalog.run("run_a"), catalog.run("run_b")
    assert a is not None
    assert b is not None
    return compare(root, a, b)


def test_what_differs_is_marked_and_what_is_the_same_is_not(tmp_path: Path) -> None:
    write_run(tmp_path / "run_a")
    events = all_events("run_b")[:-3]
    write_run(tmp_path / "run_b", [*events, *event_log.ending((2.0, 1.9, 2.1))])
    found = compared(tmp_path)
    rows = {row.label: row for row in found.figures}
    assert (rows["speedup over baseline"].a, rows["speedup over baseline"].b) == (
        "3.98× [3.91, 4.05]",
        "2.00× [1.90, 2.10]",
    )
    assert rows["speedup over baseline"].differs
    assert not rows["baseline"].differs
    assert found.cautions == ()
    assert [(row.label, row.a == row.b) for row in found.methods] == [
        ("compute.fma", True),
        ("latency.unroll", True),
        ("memory.cache_blocking", True),
    ]
    assert found.methods[0].a == "iteration 1: effective +150.0 ms [140.0, 161.0]"


def test_times_of_two_devices_are_not_compared(tmp_path: Path) -> None:
    write_run(tmp_path / "run_a")
    other = replace(event_log.ENVIRONMENT, device=replace(event_log.DEVICE, name="Other"))
    events = [
        e.model_copy(update={"environment": other}) if isinstance(e, ev.SessionStarted) else e
        for e in all_events("run_b")
    ]
    write_run(tmp_path / "run_b", events)
    found = compared(tmp_path)
    assert any("different devices (Imaginary CPU, Other): only their speedups" in caution for caution in found.cautions)
    assert found.chart is not None
    assert "speedup over the own baseline" in found.chart.caption


def test_the_best_kernels_are_compared_line_by_line(tmp_path: Path) -> None:
    write_run(tmp_path / "run_a")
    folder = write_run(tmp_path / "run_b")
    (folder / "best" / "kernel.cpp").write_text("// another\nvoid solve();\n")
    diff = compared(tmp_path).diff
    assert diff is not None
    assert [(line.kind, line.text) for line in diff[1:]] == [
        ("removed", "-// the best kernel"),
        ("added", "+// another"),
        ("same", " void solve();"),
    ]
    (folder / "best" / "kernel.cpp").write_text("// the best kernel\nvoid solve();\n")
    assert compared(tmp_path).diff == ()
    (folder / "best" / "kernel.cpp").unlink()
    assert compared(tmp_path).diff is None


def test_settings_that_differ_are_shown_without_what_is_secret() -> None:
    a = {
        "search": {"branches": 4, "ablate": True},
        "memory": {"url": "postgresql://me:hunter2@db/x"},
        "llm": {"api_key_command": "pass show a", "api_key_env": "KEY_A"},
    }
    b = {
        "search": {"branches": 2, "ablate": True},
        "memory": {"url": "postgresql://you:hunter3@db/x"},
        "llm": {"api_key_command": "pass show b", "max_output_tokens": 5},
    }
    rows = {row.label: (row.a, row.b) for row in config_rows(a, b)}
    assert rows == {
        "search.branches": ("4", "2"),
        "memory.url": ("postgresql://db/x", "postgresql://db/x"),
        "llm.api_key_command": ("(set)", "(set)"),
        "llm.api_key_env": ("KEY_A", "not set"),
        "llm.max_output_tokens": ("not set", "5"),
    }
