"""What a user loses when findings are kept wrongly: a hazard held against the wrong kernel, a check that never ran."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from profiling.sanitizers.findings import LOST_REPORT, Finding, Unavailable
from profiling.sanitizers.kept import Kept
from profiling.types import Problem
from tests.kernels import gemm_problem

ABOUT = ("key of the build", "kernel.cpp", "a CPU", "", "2")
PAST = (Finding("address", "heap-buffer-overflow", "heap-buffer-overflow: WRITE of size 4", "kernel.cpp:4", 3),)


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    return gemm_problem(tmp_path)


def test_answers_are_found_again_clean_ones_too(tmp_path: Path, problem: Problem) -> None:
    case = problem.timed
    small = replace(case, dims={**case.dims, "K": 1})
    Kept(tmp_path / "kept", ABOUT).save("address", problem, case, PAST)
    Kept(tmp_path / "kept", ABOUT).save("address", problem, small, ())
    again = Kept(tmp_path / "kept", ABOUT)
    assert again.load("address", problem, case) == PAST
    assert again.load("address", problem, small) == ()


def test_races_are_looked_for_anew(tmp_path: Path, problem: Problem) -> None:
    """One that a run did not meet would be held against every later kernel."""
    Kept(tmp_path / "kept", ABOUT).save("thread", problem, problem.timed, ())
    assert Kept(tmp_path / "kept", ABOUT).load("thread", problem, problem.timed) is None


@pytest.mark.parametrize("place", range(len(ABOUT)))
def test_another_kernel_machine_or_way_of_calling_is_another_question(
    tmp_path: Path, problem: Problem, place: int
) -> None:
    Kept(tmp_path / "kept", ABOUT).save("address", problem, problem.timed, PAST)
    other = (*ABOUT[:place], "another", *ABOUT[place + 1 :])
    assert Kept(tmp_path / "kept", other).load("address", problem, problem.timed) is None


def test_another_shape_or_way_of_making_inputs_is_another_question(tmp_path: Path, problem: Problem) -> None:
    kept, case = Kept(tmp_path / "kept", ABOUT), problem.timed
    kept.save("address", problem, case, PAST)
    assert kept.load("address", problem, replace(case, dims={**case.dims, "K": 1})) is None
    assert kept.load("address", problem, replace(case, arguments=case.arguments[1:])) is None
    assert problem.reference is not None
    problem.reference.write_text(problem.reference.read_text() + "\ndef inputs(seed, **dims): ...\n")
    assert kept.load("address", problem, case) is None


@pytest.mark.parametrize(
    "outcome",
    [
        Unavailable("address", "the call took longer than 30 s under it"),
        (*PAST, Finding("address", LOST_REPORT, "it reported an error, and its report is gone", None, 1)),
    ],
)
def test_no_answer_is_asked_for_again(
    tmp_path: Path, problem: Problem, outcome: Unavailable | tuple[Finding, ...]
) -> None:
    kept = Kept(tmp_path / "kept", ABOUT)
    kept.save("address", problem, problem.timed, outcome)
    assert kept.load("address", problem, problem.timed) is None
    assert not (tmp_path / "kept").exists()


def test_a_damaged_answer_is_none(tmp_path: Path, problem: Problem) -> None:
    kept = Kept(tmp_path / "kept", ABOUT)
    kept.save("address", problem, problem.timed, PAST)
    (file,) = (tmp_path / "kept").iterdir()
    file.write_text(file.read_text()[:20])
    assert kept.load("address", problem, problem.timed) is None
