"""`on_finish` gets the summary; whatever becomes of it, the night's result stands."""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path

import pytest

from agent.nightly.summary import NightSummary
from agent.nightly.telling import tell

SUMMARY = NightSummary(
    night="night_1",
    folder="/runs/night_1",
    version="0",
    status="finished",
    exit_code=0,
    began="2026-11-30T01:00:00+00:00",
    as_of="2026-11-30T01:00:05+00:00",
    elapsed_s=5.0,
    sessions=1,
    usd=0.0,
    usd_limit=None,
    hours_limit=None,
    told=None,
    tasks=(),
)


def python(code: str) -> str:
    return shlex.join([sys.executable, "-c", code])


def test_it_is_told_the_summary_as_json_and_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    code = f"import os,sys; open({str(tmp_path / 'told')!r}, 'w').write(sys.stdin.read() + repr(dict(os.environ)))"
    assert tell(python(code), 30, SUMMARY) is None
    told, _, environment = (tmp_path / "told").read_text().partition("\n")
    assert NightSummary.model_validate(json.loads(told)) == SUMMARY
    assert "secret" not in environment


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (python("import sys; print('no route', file=sys.stderr); sys.exit(3)"), "exit code 3: no route"),
        ("/no/such/command", "cannot be run"),
        ("'unclosed", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_a_failure_is_one_line(command: str, said: str) -> None:
    problem = tell(command, 30, SUMMARY)
    assert problem is not None
    assert said in problem
    assert "\n" not in problem


def test_one_that_hangs_is_killed_with_all_it_started() -> None:
    begun = time.monotonic()
    problem = tell("sh -c 'sleep 60 & sleep 60'", 0.5, SUMMARY)
    assert problem is not None
    assert "did not end within 0.5 s" in problem
    assert time.monotonic() - begun < 20
