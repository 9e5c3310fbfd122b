"""A night in batch mode: a whole run, stopped while its batch waits and gone on with."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.loop.scenario import events_of, roofclimb, start, state_of, wait_for, write_task
from tests.loop.test_providers import answer
from tests.loopback_batch import BatchLoopback

KEY = "sk-only-for-the-loopback"


def test_a_run_stopped_while_its_batch_waits_goes_on_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with BatchLoopback(answer, looks=None) as server:
        config = write_task(
            tmp_path,
            {"provider": "anthropic", "model": "claude-opus-5", "base_url": server.base_url, "mode": "batch"},
            ablate=False,
        )
        run = start(tmp_path, "run", "--config", str(config), "--set", "budget.usd=2")
        wait_for(tmp_path, "batch_accepted", run)
        os.kill(run.pid, signal.SIGINT)
        _, said = run.communicate(timeout=60)
        assert run.returncode == 130, said

        server.looks = 1
        done = roofclimb("resume", "runs/latest", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert [len(made.items) for made in server.made] == [2]
        assert len(server.asked) == 1  # the plan
    state = state_of(tmp_path)
    assert state.status == "finished"
    assert [branch.status for branch in state.branches] == ["pass", "pass"]
    usd = {event["key"]: event["reply"]["usd"] for event in events_of(tmp_path, "reply_received")}
    assert state.cost.usd == pytest.approx(sum(usd.values()))
    assert state.cost.calls == 3
    assert "1 batch" in (tmp_path / "runs/latest/summary.md").read_text(encoding="utf-8")
    left = [p for p in tmp_path.rglob("*") if p.is_file() and KEY.encode() in p.read_bytes()]
    assert left == []
