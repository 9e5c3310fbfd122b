"""Whole runs: real builds, real timings, real disassembly, real database; only the answers are written by hand."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.loop.scenario import BROKEN, METHOD, WRONG, fenced, kernel, plan, replay_task, roofclimb, state_of


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two iterations: b1 of the first fails, the second brings nothing new."""
    folder = tmp_path_factory.mktemp("run")
    answers = {
        "iter1-plan-0": plan(2, rows=2),
        "iter1-branch-b0-0": fenced(kernel(2)),
        "iter1-branch-b1-0": fenced(WRONG),
        "iter2-plan-0": plan(2, "compute.vectorize_hints", rows=1),
        "iter2-branch-b0-0": fenced(kernel(1)),
        "iter2-branch-b1-0": fenced(BROKEN),
    }
    done = roofclimb("run", "--config", str(replay_task(folder, answers, iterations=2)), "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "finished"
    return folder


def test_the_run_ends_with_a_believable_speedup(finished: Path) -> None:
    state = state_of(finished)
    assert state.status == "finished"
    assert state.stop_reason == "iterations"
    assert state.speedup is not None
    assert state.speedup_interval is not None
    assert state.speedup_interval[0] <= state.speedup <= state.speedup_interval[1]
    assert state.speedup > 1.5
    assert state.best_file == "best/kernel.cpp"
    assert state.aa_spread is not None


def test_every_artefact_is_there(finished: Path) -> None:
    run = finished / "runs" / "latest"
    names = ["config.yaml", "env.json", "env.md", "events.jsonl", "state.json", "summary.md", "report.html"]
    names += ["baseline/kernel.cpp", "baseline/bench.json"]
    names += [f"best/{n}" for n in ("kernel.cpp", "bench.json", "manifest.json")]
    iteration = ["roofline.json", "methods.json", "analysis.md", "ncu_top.json", "best_input.profile.json"]
    iteration += ["branches/b0/kernel.cpp", "branches/b0/bench.json", "branches/b0/build.log"]
    iteration += ["kernel.cpp", "sass_check.json", "attribution.json", "bench.json", "prompts/iter1-plan-0.prompt.md"]
    iteration += [f"ablations/no_{METHOD}/kernel.cpp", f"ablations/no_{METHOD}/bench.json"]
    names += [f"iterv1/{n}" for n in iteration]
    assert [n for n in names if not (run / n).is_file()] == []


def test_the_method_has_cause_presence_and_effect(finished: Path) -> None:
    state = state_of(finished)
    effective = [m for m in state.effective_methods if m.iteration == 1]
    assert [m.method for m in effective] == [METHOD]
    assert effective[0].attribution_ms is not None
    assert effective[0].low_ms is not None
    assert effective[0].low_ms > 0
    assert effective[0].form == "switch"


def test_a_wrong_branch_is_a_value_with_a_reason_and_the_others_go_on(finished: Path) -> None:
    branches = {(b.iteration, b.name): b for b in state_of(finished).branches}
    assert branches[1, "b1"].status == "fail"
    assert "y[" in (branches[1, "b1"].reason or "")
    assert branches[2, "b1"].status == "rejected"
    assert branches[1, "b0"].champion


def test_a_champion_that_is_not_faster_is_not_accepted_but_still_ablated(finished: Path) -> None:
    second = next(i for i in state_of(finished).iterations if i.iteration == 2)
    assert second.status == "not-accepted"
    assert (finished / "runs" / "latest" / "iterv2" / "attribution.json").is_file()


def test_memory_holds_the_outcome_and_the_next_run_is_told(finished: Path) -> None:
    listed = roofclimb("memory", "list", "--url", "sqlite:///memory.db", "--json", cwd=finished)
    outcomes = [r["outcome"] for r in json.loads(listed.stdout)["records"]]
    assert "positive" in outcomes
    assert "negative" in outcomes
    again = roofclimb("run", "--config", "task.yaml", "--set", "search.iterations=1", cwd=finished)
    assert again.returncode == 0, again.stderr
    prompt = (finished / "runs" / "latest" / "iterv1" / "prompts" / "iter1-plan-0.prompt.md").read_text()
    assert "Worked before" in prompt
    assert METHOD in prompt
    assert "Blocked" in prompt


def test_prompts_never_show_the_timed_dims(finished: Path) -> None:
    prompts = list((finished / "runs" / "latest" / "iterv1" / "prompts").glob("*.prompt.md"))
    assert prompts
    assert not any(re.search(r"\b640\b", p.read_text()) for p in prompts)


def test_report_is_written_anew_from_the_events_alone(finished: Path) -> None:
    run = finished / "runs" / "latest"
    before = (run / "summary.md").read_text()
    (run / "summary.md").unlink()
    (run / "report.html").unlink()
    done = roofclimb("report", "runs/latest", "--json", cwd=finished)
    assert done.returncode == 0, done.stderr
    assert (run / "summary.md").read_text() == before
    assert (run / "report.html").is_file()


def test_the_best_kernel_can_be_measured_again_from_its_bundle(finished: Path) -> None:
    run = finished / "runs" / "latest"
    manifest = json.loads((run / "best" / "manifest.json").read_text())
    command = manifest["measure_command"].split()
    assert command[:3] == ["python", "-m", "agent"]
    done = roofclimb(*command[3:], "--json", cwd=run)
    result = json.loads(done.stdout)
    assert result["verdict"] == "pass"
    assert result["speedup_over_baseline"] > 1.5


def test_the_recorded_speedup_is_verified_from_the_bundle_alone_wherever_it_lies(
    finished: Path, tmp_path: Path
) -> None:
    """A colleague is sent `best/` and nothing else."""
    bundle = tmp_path / "sent by mail"
    shutil.copytree(finished / "runs" / "latest" / "best", bundle)
    done = roofclimb("verify", str(bundle), "--json", cwd=tmp_path)
    result = json.loads(done.stdout)
    # On a machine that others use, the ratio of a day ago may be missed; then the exit code says so.
    assert done.returncode == (5 if result["finding"] == "missed" else 0), done.stderr
    assert result["finding"] in ("holds", "exceeded", "missed")
    assert result["measured"]["speedup"] > 1.5
    state = state_of(finished)
    assert [result["recorded"]["low"], result["recorded"]["high"]] == list(state.speedup_interval or ())
    assert "not the recorded one" not in " ".join(result["notes"])


def test_a_speedup_that_nobody_measured_is_refuted(finished: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "best"
    shutil.copytree(finished / "runs" / "latest" / "best", bundle)
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["claim"] |= {"speedup": 5000.0, "low": 4900.0, "high": 5100.0}
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    done = roofclimb("verify", str(tmp_path), "--json", cwd=tmp_path)
    assert done.returncode == 5, done.stderr
    assert json.loads(done.stdout)["finding"] == "missed"
    assert "the recorded speedup does not hold: recorded 5000× [4900, 5100], measured again" in done.stderr
