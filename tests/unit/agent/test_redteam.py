"""What a person is told of the red-team suite, and that nothing counts as rejected that was not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import click
import pytest
from click.testing import CliRunner

from agent.cli import main
from agent.command import Result, command
from agent.errors import HarnessBroken
from agent.redteam import Outcome, Played, unavailable
from profiling.redteam.cases import find_cases

CASE = next(case for case in find_cases("cpp") if case.name == "no_op")
WRONG = Outcome("rejected", "harness", "C[0,0] is 1, expected 2")
PASSED = Outcome("passed", None, "")


def test_an_exploit_counts_as_rejected_for_its_own_reason_alone() -> None:
    """One that no longer builds, or crashes, would else look as if the walls held."""
    assert Played(CASE, WRONG, PASSED).ok
    assert not Played(CASE, Outcome("rejected", "build", "kernel.cpp:3: expected ';'"), PASSED).ok
    assert not Played(CASE, PASSED, PASSED).ok
    assert not Played(CASE, Outcome("error", None, "a worker did not start"), PASSED).ok


@pytest.mark.parametrize("twin", [WRONG, Outcome("rejected", "check", "calls dlopen"), Outcome("error", None, "")])
def test_a_twin_that_is_not_accepted_counts_whatever_became_of_the_exploit(twin: Outcome) -> None:
    assert not Played(CASE, WRONG, twin).ok
    assert not Played(replace(CASE, gap="known"), PASSED, twin).ok


def test_a_skipped_exploit_and_a_known_gap_are_neither_wrong_nor_rejected() -> None:
    skipped = Played(CASE, Outcome("skipped", None, "only mount stops it"), PASSED)
    gap = Played(replace(CASE, gap="the clock is in its process"), PASSED, PASSED)
    assert (skipped.ok, skipped.as_expected) == (True, False)
    assert (gap.ok, gap.as_expected, gap.gap) == (True, False, True)
    assert not Played(replace(CASE, gap="closed by now"), WRONG, PASSED).gap


@click.command()
@command
def _broken() -> Result:
    raise HarnessBroken("1 of 2 cases went wrong: cpp/no_op", ({"cases": [1, 2]}, "a table"))


def test_the_table_is_shown_even_where_a_case_went_wrong() -> None:
    shown = CliRunner().invoke(_broken)
    assert (shown.exit_code, shown.stdout) == (5, "a table\n")
    assert shown.stderr == "roofclimb: 1 of 2 cases went wrong: cpp/no_op\n"
    data = json.loads(CliRunner().invoke(_broken, ["--json"]).stdout)
    assert data == {"cases": [1, 2], "error": "1 of 2 cases went wrong: cpp/no_op", "exit_code": 5}


def test_a_case_that_is_not_there_is_told_with_the_nearest() -> None:
    done = CliRunner().invoke(main, ["redteam", "--backend", "cpp", "--only", "noop"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "roofclimb: redteam: no case is called `noop`; did you mean `no_op`?\n"


def test_without_a_gpu_its_cases_are_the_machines_fault() -> None:
    command = [sys.executable, "-m", "agent", "redteam", "--backend", "triton"]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("roofclimb: redteam: triton cases cannot be played here: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(unavailable("cuda") is None, reason="this machine has a GPU: the case is played")
def test_nothing_played_is_no_success() -> None:
    done = CliRunner().invoke(main, ["redteam", "--only", "sync_detour_alone"])
    assert done.exit_code == 3
    assert "nothing can be played here: " in done.stderr


def test_without_a_backend_what_cannot_be_played_is_left_out_by_name() -> None:
    command = [sys.executable, "-m", "agent", "redteam", "--only", "zeros", "--json"]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert [(row["backend"], row["name"], row["verdict"]) for row in data["cases"]] == [("cpp", "zeros", "rejected")]
    assert list(data["left_out"]) == ["cuda"]
