"""A run does not start on a harness that lets a known exploit pass."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agent.config import load_config
from agent.errors import HarnessBroken, UnfitEnvironment
from agent.events import EVENT
from agent.progress import describe
from agent.stages.trial import build_exploits, rejections
from agent.task import prepare_task
from backends.types import Signature
from profiling.redteam.quick import NAMES, cheat_source
from profiling.types import Evaluation, Verdict
from tests.kernels import integer, pointer

ROOT = Path(__file__).resolve().parents[4]


@dataclass(frozen=True, slots=True)
class Says:
    """A harness that says the same of every kernel."""

    verdict: Verdict

    def evaluate(self, artifact: Path) -> Evaluation:
        return Evaluation(self.verdict, None if self.verdict == "pass" else f"{artifact.name} is wrong", (), None)


CHEATS = {"no_op": Path("empty.so"), "after_return": Path("late.so")}


def test_an_exploit_that_passes_ends_the_run_before_anything_is_asked() -> None:
    with pytest.raises(HarnessBroken, match=r"exploit no_op passed.*redteam --backend cuda") as ended:
        rejections(Says("pass"), CHEATS, "cuda")
    assert ended.value.exit_code == 5


def test_an_exploit_that_cannot_be_judged_is_the_machines_fault() -> None:
    with pytest.raises(UnfitEnvironment, match="no_op cannot be judged here"):
        rejections(Says("error"), CHEATS, "cpp")


@pytest.mark.parametrize("verdict", ["fail", "suspect"])
def test_rejected_exploits_are_logged_with_their_reasons(verdict: Verdict) -> None:
    found = rejections(Says(verdict), CHEATS, "cpp")
    assert found == {"no_op": "empty.so is wrong", "after_return": "late.so is wrong"}


@pytest.mark.parametrize("config", ["quickstart", "gemm", "softmax_cutlass", "batchnorm", "layernorm_triton"])
def test_exploits_can_be_made_of_the_baselines_that_we_ship(config: str, tmp_path: Path) -> None:
    """What cannot be built is left out of the trial, and a run starts less well tried."""
    task = prepare_task(load_config(ROOT / "configs" / f"{config}.yaml"))
    if task.backend.device == "gpu":
        task = replace(task, spec=replace(task.spec, arch="sm_90"))
    made, left_out = build_exploits(task, tmp_path)
    assert (sorted(made), left_out) == (sorted(NAMES), {})


def test_a_kernel_that_returns_a_status_still_returns_one() -> None:
    signature = Signature((pointer("x", const=False), integer("n")), returns="int")
    text = cheat_source("after_return", 'extern "C" int solve(float* x, int n) { return 0; }', signature, triton=False)
    assert 'extern "C" int solve(void* a0, int32_t a1)' in text
    assert "return 0; }" in text.replace("\n", " ")


def test_a_person_is_told_which_exploits_were_tried() -> None:
    event = {"type": "exploits_played", "key": "exploits", "rejected": {"no_op": "x", "after_return": "y"}}
    assert describe(EVENT.validate_json(json.dumps(event))) == "known exploits rejected: no_op, after_return"
