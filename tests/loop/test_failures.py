"""What goes wrong in a night, and what the loop makes of it: repairs, duplicates, refusals, cut answers, stop rules."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.loop.scenario import (
    BROKEN,
    METHOD,
    WRONG,
    events_of,
    fenced,
    kernel,
    plan,
    record,
    replay_task,
    roofclimb,
    start,
    state_of,
    wait_for,
)


def run(folder: Path, config: Path, *more: str) -> None:
    done = roofclimb("run", "--config", str(config), *more, cwd=folder)
    assert done.returncode == 0, done.stderr


def test_when_all_branches_fail_the_repair_gets_the_reason_and_saves_the_iteration(tmp_path: Path) -> None:
    answers = {
        "iter1-plan-0": plan(2),
        "iter1-branch-b0-0": fenced(BROKEN),
        "iter1-branch-b1-0": fenced(WRONG),
        "iter1-repair-b0-0": fenced(kernel(2)),
        "iter1-repair-b1-0": fenced(WRONG + "// again\n"),
    }
    run(tmp_path, replay_task(tmp_path, answers, ablate=False))
    branches = {b.name: b for b in state_of(tmp_path).branches}
    assert (branches["b0"].status, branches["b0"].repairs) == ("pass", 1)
    assert branches["b1"].status == "fail"
    prompts = tmp_path / "runs" / "latest" / "iterv1" / "prompts"
    assert "error" in (prompts / "iter1-repair-b0-0.prompt.md").read_text()
    assert "y[" in (prompts / "iter1-repair-b1-0.prompt.md").read_text()


def test_repairs_end_after_the_limit_and_the_run_goes_on_without_a_gain(tmp_path: Path) -> None:
    answers = {"iter1-plan-0": plan(1), "iter1-branch-b0-0": fenced(WRONG)}
    answers |= {f"iter1-repair-b0-{i}": fenced(f"{WRONG}// {i}\n") for i in range(3)}
    answers |= {"iter2-plan-0": plan(1, unroll=2), "iter2-branch-b0-0": fenced(kernel(2))}
    run(tmp_path, replay_task(tmp_path, answers, iterations=2, branches=1, ablate=False))
    state = state_of(tmp_path)
    assert [i.status for i in state.iterations] == ["failed", "accepted"]
    assert len([e for e in events_of(tmp_path, "request_sent") if e["purpose"] == "repair"]) == 3
    listed = roofclimb("memory", "list", "--url", "sqlite:///memory.db", "--json", cwd=tmp_path)
    assert "rejected" in [r["outcome"] for r in json.loads(listed.stdout)["records"]]


def test_duplicates_are_asked_for_once_more_and_then_dropped_before_any_build(tmp_path: Path) -> None:
    answers = {
        "iter1-plan-0": plan(3),
        "iter1-branch-b0-0": fenced(kernel(2)),
        "iter1-branch-b1-0": fenced(kernel(2, comment="another comment").replace("    ", "  ")),
        "iter1-branch-b1-1": fenced(kernel(4)),
        "iter1-branch-b2-0": fenced(kernel(2, comment="and another")),
        "iter1-branch-b2-1": fenced(kernel(4, comment="still the same")),
    }
    record(tmp_path / "answers", answers, branches=3)
    run(tmp_path, replay_task(tmp_path, answers, branches=3, ablate=False))
    branches = {b.name: b for b in state_of(tmp_path).branches}
    assert branches["b1"].status == "pass"
    assert branches["b2"].status == "rejected"
    assert "duplicate" in (branches["b2"].reason or "")
    assert [e["branch"] for e in events_of(tmp_path, "evaluated") if e["iteration"] == 1] == ["b0", "b1"]


def test_a_refused_plan_goes_back_with_the_reasons_at_most_twice(tmp_path: Path) -> None:
    wrong_quote = plan(1, value=0.9)
    answers = {"iter1-plan-0": wrong_quote, "iter1-plan-1": "no JSON here", "iter1-plan-2": plan(1)}
    answers["iter1-branch-b0-0"] = fenced(kernel(2))
    run(tmp_path, replay_task(tmp_path, answers, branches=1, ablate=False))
    prompts = tmp_path / "runs" / "latest" / "iterv1" / "prompts"
    assert "the profile says 0.5" in (prompts / "iter1-plan-1.prompt.md").read_text()
    assert "not one JSON object" in (prompts / "iter1-plan-2.prompt.md").read_text()
    assert state_of(tmp_path).iterations[0].status == "accepted"


def test_a_plan_that_never_holds_fails_the_iteration_and_the_report_says_no_improvement(tmp_path: Path) -> None:
    answers = {f"iter1-plan-{i}": plan(1, value=0.9) for i in range(3)}
    run(tmp_path, replay_task(tmp_path, answers, branches=1))
    state = state_of(tmp_path)
    assert state.status == "finished"
    assert state.iterations[0].status == "failed"
    assert state.speedup_interval is not None
    assert "No significant improvement" in (tmp_path / "runs" / "latest" / "summary.md").read_text()


def test_a_missing_recording_rejects_that_branch_only(tmp_path: Path) -> None:
    answers = {"iter1-plan-0": plan(2), "iter1-branch-b1-0": fenced(kernel(2))}
    run(tmp_path, replay_task(tmp_path, answers, ablate=False))
    branches = {b.name: b.status for b in state_of(tmp_path).branches}
    assert branches == {"b0": "rejected", "b1": "pass"}


def test_a_kernel_without_a_switch_is_ablated_by_rewrite(tmp_path: Path) -> None:
    answers = {
        "iter1-plan-0": plan(1),
        "iter1-branch-b0-0": fenced(kernel(2, switch=False)),
        f"iter1-ablate-{METHOD}-0": fenced(kernel(2, switch=False, comment="x").replace("y[i] = 0.0f", "y[i] = 1.0f")),
    }
    run(tmp_path, replay_task(tmp_path, answers, branches=1))
    unknown = state_of(tmp_path).unverified_methods
    assert [(m.method, m.form, m.attribution_ms) for m in unknown] == [(METHOD, "rewrite", None)]

    slow = kernel(2).replace("#define RC_LOOP_INTERCHANGE 1", "#define RC_LOOP_INTERCHANGE 0")
    record(tmp_path / "answers", {f"iter1-ablate-{METHOD}-0": fenced(slow)})
    run(tmp_path, tmp_path / "task.yaml")
    effective = state_of(tmp_path).effective_methods
    assert [(m.method, m.form) for m in effective] == [(METHOD, "rewrite")]


def test_a_switch_that_changes_nothing_is_a_failed_implementation(tmp_path: Path) -> None:
    idle = kernel(2, switch=False).replace("#include", "#include") + "#if RC_LOOP_INTERCHANGE\n#endif\n"
    answers = {"iter1-plan-0": plan(1), "iter1-branch-b0-0": fenced(idle)}
    run(tmp_path, replay_task(tmp_path, answers, branches=1))
    failed = state_of(tmp_path).implementation_failed_methods
    assert [m.method for m in failed] == [METHOD]


def test_patience_ends_a_run_that_gains_nothing(tmp_path: Path) -> None:
    answers: dict[str, str] = {}
    for i in (1, 2, 3):
        answers |= {f"iter{i}-plan-{a}": "nothing" for a in range(3)}
    run(tmp_path, replay_task(tmp_path, answers, iterations=3, branches=1, patience=2))
    state = state_of(tmp_path)
    assert state.stop_reason == "patience"
    assert len(state.iterations) == 2


def test_a_used_up_budget_is_a_normal_end_with_a_headline(tmp_path: Path) -> None:
    answers = {"iter1-plan-0": plan(1), "iter1-branch-b0-0": fenced(kernel(2))}
    config = replay_task(tmp_path, answers, iterations=2, branches=1, ablate=False)
    run(tmp_path, config, "--set", "budget.tokens=18000")
    state = state_of(tmp_path)
    assert state.stop_reason == "budget"
    assert state.speedup is not None
    assert "tokens" in " ".join(state.notes)


def test_used_up_minutes_end_the_run_with_what_it_has(tmp_path: Path) -> None:
    answers = {"iter1-plan-0": plan(1), "iter1-branch-b0-0": fenced(kernel(2))}
    config = replay_task(tmp_path, answers, iterations=2, branches=1, ablate=False)
    run(tmp_path, config, "--set", "budget.minutes=0.0001")
    state = state_of(tmp_path)
    assert (state.status, state.stop_reason) == ("finished", "budget")
    assert state.speedup is not None
    assert (tmp_path / "runs" / "latest" / "best" / "kernel.cpp").is_file()


def test_answers_that_never_came_teach_memory_nothing(tmp_path: Path) -> None:
    run(tmp_path, replay_task(tmp_path, {"iter1-plan-0": plan(1)}, branches=1))
    assert state_of(tmp_path).iterations[0].status == "failed"
    listed = roofclimb("memory", "list", "--url", "sqlite:///memory.db", "--json", cwd=tmp_path)
    assert json.loads(listed.stdout)["records"] == []


def test_a_candidate_with_another_signature_is_rejected_before_it_runs(tmp_path: Path) -> None:
    other = kernel(2).replace("float* __restrict__ y, int N", "const float* __restrict__ y, int N")
    answers = {"iter1-plan-0": plan(1), "iter1-branch-b0-0": fenced(other)}
    run(tmp_path, replay_task(tmp_path, answers, branches=1, repairs=0))
    branch = state_of(tmp_path).branches[0]
    assert branch.status == "rejected"
    assert "y" in (branch.reason or "")


def test_a_blocked_strategy_is_refused_in_a_live_run_and_only_logged_in_a_replay(tmp_path: Path) -> None:
    answers = {"iter1-plan-0": plan(1, "compute.vectorize_hints")}
    answers["iter1-branch-b0-0"] = fenced(
        'extern "C" void solve(const float* A, const float* x, float* y, int N) {\n'
        "    for (int i = 0; i < N; ++i) { float s = 0; for (int r = 0; r < 2; ++r) { volatile float t = 0; "
        "for (int j = 0; j < N; ++j) t = t + A[j * N + i] * x[j]; s = t; } y[i] = s; } }\n"
    )
    run(tmp_path, replay_task(tmp_path, answers, branches=1, ablate=False))
    assert state_of(tmp_path).iterations[0].status == "not-accepted"
    run(tmp_path, tmp_path / "task.yaml")
    assert any("blocked by memory record" in n for n in state_of(tmp_path).notes)
    assert state_of(tmp_path).iterations[0].status == "not-accepted"


def test_a_kernel_as_near_its_floor_as_the_task_asks_for_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "answers").mkdir()
    run(tmp_path, replay_task(tmp_path, {}), "--set", "search.near_peak=1")
    state = state_of(tmp_path)
    assert state.stop_reason == "near-peak"
    assert state.cost.calls == 0


def test_a_memory_that_breaks_in_the_night_does_not_end_it(tmp_path: Path) -> None:
    answers = {"iter1-plan-0": plan(1), "iter1-branch-b0-0": fenced(kernel(2))}
    config = replay_task(tmp_path, answers, branches=1)
    process = start(tmp_path, "run", "--config", str(config))
    wait_for(tmp_path, "task_checked", process)
    with closing(sqlite3.connect(tmp_path / "memory.db")) as database:
        for (table,) in database.execute("select name from sqlite_master where type = 'table'").fetchall():
            database.execute(f'drop table if exists "{table}"')
        database.commit()
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    notes = " ".join(state_of(tmp_path).notes)
    assert "nothing recalled" in notes
    assert "nothing remembered" in notes
