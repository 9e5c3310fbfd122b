"""What sanitizers find rejects a champion, or is only told: by what the tool can be sure of, and by the baseline."""

from __future__ import annotations

import pytest

from agent.stages.sanitizing import verdict
from profiling.sanitizers.findings import Finding, SanitizerReport, Tool, Unavailable

CLEAN = SanitizerReport(("memcheck", "racecheck", "initcheck", "synccheck", "address", "thread"), (), ())


def found(*tools: Tool) -> SanitizerReport:
    return SanitizerReport((), tuple(Finding(t, "kind", "message", "kernel.cu:1", 1) for t in tools), ())


@pytest.mark.parametrize("tool", ["memcheck", "synccheck", "address"])
def test_a_certain_fault_rejects_whatever_the_baseline_does(tool: Tool) -> None:
    rejected = verdict(found(tool), found(tool))
    assert rejected is not None
    assert f"{tool}: message at kernel.cu:1" in rejected.reason


@pytest.mark.parametrize("tool", ["racecheck", "initcheck", "thread"])
def test_a_hazard_rejects_only_where_the_baseline_was_seen_to_have_none(tool: Tool) -> None:
    assert verdict(found(tool), CLEAN) is not None
    assert verdict(found(tool), found(tool)) is None
    assert verdict(found(tool), SanitizerReport((), (), (Unavailable(tool, "too slow"),))) is None


def test_no_answer_is_no_finding() -> None:
    assert verdict(SanitizerReport((), (), (Unavailable("memcheck", "not installed"),)), CLEAN) is None


def test_the_reason_says_how_much_more_there_is_and_the_evidence_has_it() -> None:
    rejected = verdict(found("memcheck", "racecheck", "synccheck"), found("racecheck"))
    assert rejected is not None
    assert "(and 1 more)" in rejected.reason
    assert rejected.evidence.splitlines() == ["memcheck: message at kernel.cu:1", "synccheck: message at kernel.cu:1"]
