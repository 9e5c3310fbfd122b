"""Every known cheat must be rejected for its reason, and its honest twin accepted: `redteam` itself plays them.

All run in one harness, one after the other, so each also shows that the one before it left nothing behind.
"""

from __future__ import annotations

import pytest

from agent.redteam import Played, play
from profiling.redteam.cases import find_cases

_CASES = find_cases("cpp")


@pytest.fixture(scope="module")
def played() -> dict[str, Played]:
    return {p.case.name: p for p in play(_CASES, lambda backend, layers: None)}


@pytest.mark.parametrize("name", [case.name for case in _CASES])
def test_a_cheat_is_rejected_for_its_reason(played: dict[str, Played], name: str) -> None:
    cheat = played[name].cheat
    if cheat.verdict == "skipped":
        pytest.skip(cheat.reason)
    assert played[name].as_expected, cheat


@pytest.mark.parametrize("name", [case.name for case in _CASES])
def test_its_honest_twin_is_accepted(played: dict[str, Played], name: str) -> None:
    assert played[name].twin.verdict == "passed", played[name].twin
