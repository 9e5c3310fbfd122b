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
RACE = (Finding("thread", "data race", "data race: Write of size 4", "kernel.cpp:4", 3),)


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    return gemm_problem(tmp_path)


def test_answers_are_found_again_clean_ones_too(tmp_path: Path, problem: Problem) -> None:
    case = problem.timed
    Kept(tmp_path / "kept", ABOUT).save("thread", problem, case, RACE)
    Kept(tmp_path / "kept", ABOUT).save("address", problem, case, ())
    again = Kept(tmp_path / "kept", ABOUT)
    assert again.load("thread", problem, case) == RACE
    assert again.load("address", problem, case) == ()


@pytest.mark.parametrize("place", range(len(ABOUT)))
def test_another_kernel_machine_or_way_of_calling_is_another_question(
    tmp_path: Path, problem: Problem, place: int
) -> None:
    Kept(tmp_path / "kept", ABOUT).save("thread", problem, problem.timed, RACE)
    other = (*ABOUT[:place], "another", *ABOUT[place + 1 :])
    assert Kept(tmp_path / "kept", other).load("thread", problem, problem.timed) is None


def test_another_shape_or_way_of_making_inputs_is_another_question(tmp_path: Path, problem: Problem) -> None:
    kept, case = Kept(tmp_path / "kept", ABOUT), problem.timed
    kept.save("thread", problem, case, RACE)
    assert kept.load("address", problem, case) is None
    assert kept.load("thread", problem, replace(case, dims={**case.dims, "K": 1})) is None
    assert kept.load("thread", problem, replace(case, arguments=case.arguments[1:])) is None
    assert problem.reference is not None
    problem.reference.write_text(problem.reference.read_text() + "\ndef inputs(seed, **dims): ...\n")
    assert kept.load("thread", problem, case) is None


@pytest.mark.parametrize(
    "outcome",
    [
        Unavailable("thread", "the call took longer than 30 s under it"),
        (*RACE, Finding("thread", LOST_REPORT, "it reported an error, and its report is gone", None, 1)),
    ],
)
def test_no_answer_is_asked_for_again(
    tmp_path: Path, problem: Problem, outcome: Unavailable | tuple[Finding, ...]
) -> None:
    kept = Kept(tmp_path / "kept", ABOUT)
    kept.save("thread", problem, problem.timed, outcome)
    assert kept.load("thread", problem, problem.timed) is None
    assert not (tmp_path / "kept").exists()


def test_a_damaged_answer_is_none(tmp_path: Path, problem: Problem) -> None:
    kept = Kept(tmp_path / "kept", ABOUT)
    kept.save("thread", problem, problem.timed, RACE)
    (file,) = (tmp_path / "kept").iterdir()
    file.write_text(file.read_text()[:20])
    assert kept.load("thread", problem, problem.timed) is None
