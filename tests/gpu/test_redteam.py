"""Every known cheat of a GPU kernel is rejected for its reason on the real GPU, and its honest twin accepted.

`python -m agent redteam --backend cuda` (cutlass, triton) shows the same as a table; `pytest -rP` prints it here.
"""

from __future__ import annotations

import pytest

from agent.redteam import Played, play
from agent.redteam_cli import table
from profiling.redteam.cases import Case, find_cases

pytestmark = pytest.mark.gpu

_BACKENDS = ("cuda", "cutlass", "triton")
_CASES = {f"{c.backend}/{c.name}": c for backend in _BACKENDS for c in find_cases(backend)}
_NAMES = [pytest.param(name, marks=pytest.mark.xdist_group(case.backend)) for name, case in _CASES.items()]
_played: dict[str, Played] = {}


def played(case: Case) -> Played:
    """All cases of a backend are played when the first is asked for: their builds run side by side."""
    name = f"{case.backend}/{case.name}"
    if name not in _played:
        together = [c for c in _CASES.values() if c.backend == case.backend]
        missing: dict[str, list[str]] = {}
        found = list(play(together, missing.__setitem__))
        print(table(found, missing, {}))
        _played.update({f"{p.case.backend}/{p.case.name}": p for p in found})
    return _played[name]


@pytest.mark.parametrize("name", _NAMES)
def test_a_cheat_is_rejected_for_its_reason(name: str) -> None:
    found = played(_CASES[name])
    if found.cheat.verdict == "skipped":
        pytest.skip(found.cheat.reason)
    if found.gap:
        pytest.skip(f"known gap: {_CASES[name].gap} ({found.cheat.verdict})")
    assert found.as_expected, found.cheat


@pytest.mark.parametrize("name", _NAMES)
def test_its_honest_twin_is_accepted(name: str) -> None:
    assert played(_CASES[name]).twin.verdict == "passed", played(_CASES[name]).twin
