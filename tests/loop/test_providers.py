"""Swapping the provider is one line of config: the same run through each real SDK, against a server on the loopback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.loop.scenario import fenced, kernel, plan, replay_task, roofclimb, state_of, write_task
from tests.loopback import Asked, Fault, Loopback

KEY = "sk-only-for-the-loopback"


def answer(asked: Asked) -> str | Fault:
    """A model that reads its prompt: it quotes a metric of the table, and writes the branch it is asked for."""
    if "# Your answer: the plan" in asked.user:
        rows = [line.split("|") for line in asked.user.splitlines() if re.match(r"\| (compute|memory|latency) ", line)]
        quote = f'"{rows[0][2].strip()}", "value": {rows[0][3].strip()}'
        return plan(2).replace('"l1_miss_rate", "value": 0.5', quote)
    return fenced(kernel(4 if "branch b1" in asked.user else 2))


@pytest.mark.parametrize(
    ("provider", "variable"),
    [("anthropic", "ANTHROPIC_API_KEY"), ("openai", "OPENAI_API_KEY"), ("openai-compatible", "LOOPBACK_KEY")],
)
def test_a_whole_run_through_the_real_sdk(tmp_path: Path, provider: str, variable: str) -> None:
    with Loopback(answer) as server:
        url = server.base_url if provider == "anthropic" else server.v1_url
        llm = {"provider": provider, "model": "claude-sonnet-4-5", "base_url": url, "api_key_env": variable}
        llm["record"] = "recorded"
        config = write_task(tmp_path, llm)
        done = roofclimb("run", "--config", str(config), "--json", cwd=tmp_path, env={variable: KEY})
        assert done.returncode == 0, done.stderr
        assert len(server.asked) == 3
    state = state_of(tmp_path)
    assert state.status == "finished"
    assert state.speedup is not None
    assert state.speedup > 1.5
    assert state.cost.calls == 3
    assert state.cost.tokens["output"] > 0
    left = [p for p in tmp_path.rglob("*") if p.is_file() and KEY.encode() in p.read_bytes()]
    assert left == []
    assert KEY not in done.stdout + done.stderr

    # What was recorded plays back without a network and without a key.
    again = roofclimb(
        "run", "--config", "task.yaml", "--set", "llm={provider: replay, answers: recorded}", "--json", cwd=tmp_path
    )
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["speedup"] > 1.5


def profile_rows(prompt: str) -> list[str]:
    return [line for line in prompt.splitlines() if re.match(r"\| (compute|memory|latency) ", line)]


def test_a_plan_that_does_not_fit_the_model_is_asked_for_with_less_of_the_profile(tmp_path: Path) -> None:
    """What is left out is never the task, its signature or the kernel; and the same prompt does not go out again."""

    def small(asked: Asked) -> str | Fault:
        if len(profile_rows(asked.user)) > 3:
            return Fault("status", 400, {"message": "prompt is too long: input length exceeds the context limit"})
        return answer(asked)

    with Loopback(small) as server:
        llm = {"provider": "anthropic", "model": "claude-sonnet-4-5", "base_url": server.base_url}
        config = write_task(tmp_path, llm, ablate=False)
        done = roofclimb("run", "--config", str(config), cwd=tmp_path, env={"ANTHROPIC_API_KEY": KEY})
        assert done.returncode == 0, done.stderr
        long, short = (asked.user for asked in server.asked if "# Your answer: the plan" in asked.user)
    assert len(profile_rows(long)) > len(profile_rows(short)) > 0
    task = short.partition("# Evidence")[0]
    assert task == long.partition("# Evidence")[0]
    assert 'extern "C" void solve(' in task
    assert any("asked with less of the profile" in note for note in state_of(tmp_path).notes)


def test_roles_have_models_of_their_own_and_the_report_says_what_each_cost_and_won(tmp_path: Path) -> None:
    """A large model plans, small ones of two makers write: through both SDKs, with a key for each."""
    with Loopback(answer) as server:
        claude = {"provider": "anthropic", "model": "claude-sonnet-4-5", "base_url": server.base_url}
        gpt = {"provider": "openai", "model": "gpt-5.1", "base_url": server.v1_url}
        haiku = {"model": "claude-haiku-4-5"}
        config = write_task(tmp_path, {**claude, "roles": {"branch": [gpt, haiku]}}, ablate=False)
        keys = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": f"{KEY}-too"}
        done = roofclimb("run", "--config", str(config), cwd=tmp_path, env=keys)
        assert done.returncode == 0, done.stderr
    state = state_of(tmp_path)
    assert [b.model for b in state.branches] == ["gpt-5.1", "claude-haiku-4-5"]
    summary = (tmp_path / "runs/latest/summary.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in summary.splitlines() if re.match(r"\| (anthropic|openai) ", line)]
    assert {row[1].strip(): (row[2].strip(), row[4].strip()) for row in rows} == {
        "anthropic claude-sonnet-4-5": ("1", "0"),
        "openai gpt-5.1": ("1", "1"),
        "anthropic claude-haiku-4-5": ("1", "1"),
    }
    assert sum(int(row[6]) for row in rows) == 1


def test_a_model_that_refuses_the_key_ends_the_run_with_4_and_a_line_that_helps(tmp_path: Path) -> None:
    denied = Fault("status", status=401, error={"type": "authentication_error", "message": "invalid x-api-key"})
    with Loopback(lambda asked: denied) as server:
        llm = {"provider": "anthropic", "model": "claude-sonnet-4-5", "base_url": server.base_url}
        config = write_task(tmp_path, llm)
        done = roofclimb("run", "--config", str(config), cwd=tmp_path, env={"ANTHROPIC_API_KEY": KEY})
        assert len(server.asked) == 1
    assert done.returncode == 4
    assert "Traceback" not in done.stderr
    assert KEY not in done.stderr
    assert state_of(tmp_path).status == "failed"
    assert roofclimb("report", "runs/latest", cwd=tmp_path).returncode == 0


def test_branches_that_do_not_fit_the_budget_are_left_out_and_what_was_paid_for_is_used(tmp_path: Path) -> None:
    def slow(asked: Asked) -> str | Fault:
        if "# Your answer: branch" in asked.user:
            time.sleep(1.0)  # so that both are in flight at once
        return answer(asked)

    with Loopback(slow) as server:
        llm = {"provider": "openai-compatible", "model": "m", "base_url": server.v1_url}
        config = write_task(tmp_path, llm, ablate=False)
        done = roofclimb("run", "--config", str(config), "--set", "budget.tokens=30000", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert len(server.asked) == 2
    state = state_of(tmp_path)
    assert sorted(b.status for b in state.branches) == ["pass", "rejected"]
    assert state.iterations[0].status == "accepted"


def test_heavy_modules_stay_out_of_the_controller(tmp_path: Path) -> None:
    answers = {"iter1-plan-0": plan(1), "iter1-branch-b0-0": fenced(kernel(2))}
    config = replay_task(tmp_path, answers, branches=1)
    script = (
        "import sys\nfrom agent.cli import main\n"
        f"main(['run', '--config', {str(config)!r}], standalone_mode=False)\n"
        "heavy = ('torch', 'triton', 'numpy', 'anthropic', 'openai', 'httpx2')\n"
        "print('LOADED', [m for m in heavy if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, env=dict(os.environ), check=False
    )
    assert done.returncode == 0, done.stderr
    assert "LOADED []" in done.stdout
