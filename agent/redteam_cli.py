"""`redteam`: known exploits and their honest twins, played on this machine, as a table."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from agent.errors import ConfigError, HarnessBroken, UnfitEnvironment
from agent.redteam import Outcome, Played, play, unavailable
from profiling.redteam.cases import BACKENDS, Case, find_cases

_REASON, _TRIES = 72, 60  # characters of a column; --json has them whole


def redteam(backend: str | None, only: str | None) -> tuple[Mapping[str, Any], str]:
    """Play a backend's cases, or those of all that this machine can run.

    Raises:
        ConfigError: no case is called `only`.
        UnfitEnvironment: this machine cannot run the backend.
        HarnessBroken: an exploit passed, or an honest twin did not; the table comes with it.
    """
    wanted = _wanted([backend] if backend else BACKENDS, only)
    left_out = {name: why for name in wanted if (why := unavailable(name)) is not None}
    if backend is not None and left_out:
        raise UnfitEnvironment(f"redteam: {backend} cases cannot be played here: {left_out[backend]}")
    missing: dict[str, list[str]] = {}
    cases = [case for name, found in wanted.items() if name not in left_out for case in found]
    if not cases:
        raise UnfitEnvironment(f"redteam: nothing can be played here: {'; '.join(left_out.values()) or 'no such case'}")
    played = []
    for number, done in enumerate(play(cases, missing.__setitem__), 1):
        played.append(done)
        _say(f"{number}/{len(cases)} {done.case.backend}/{done.case.name}")
    _say("")
    result = {
        "cases": [_row(p) for p in played],
        "missing_layers": missing,
        "left_out": left_out,
        "ok": all(p.ok for p in played),
    }
    text = table(played, missing, left_out)
    bad = [f"{p.case.backend}/{p.case.name}" for p in played if not p.ok]
    if bad:
        raise HarnessBroken(f"redteam: {len(bad)} of {len(played)} cases went wrong: {', '.join(bad)}", (result, text))
    return result, text


def _wanted(backends: Sequence[str], only: str | None) -> dict[str, list[Case]]:
    found = {name: find_cases(name) for name in backends}
    if only is None:
        return found
    names = sorted({case.name for cases in found.values() for case in cases})
    if only not in names:
        close = difflib.get_close_matches(only, names, n=1, cutoff=0.0)
        raise ConfigError(f"redteam: no case is called `{only}`" + (f"; did you mean `{close[0]}`?" if close else ""))
    return {name: kept for name, cases in found.items() if (kept := [c for c in cases if c.name == only])}


def _say(text: str) -> None:
    """How far it is, where a person looks on."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _row(played: Played) -> dict[str, Any]:
    case, cheat, twin = played.case, played.cheat, played.twin
    return {
        "backend": case.backend,
        "name": case.name,
        "tries": case.tries,
        "verdict": cheat.verdict,
        "by": cheat.by,
        "reason": cheat.reason,
        "expected": case.expect,
        "twin": twin.verdict,
        "twin_reason": twin.reason or None,
        "gap": case.gap,
        "ok": played.ok,
    }


def table(played: Sequence[Played], missing: Mapping[str, Sequence[str]], left_out: Mapping[str, str]) -> str:
    """What was played, a line each; layers that are missing and backends that were left out, by backend."""
    rows = [("case", "what it tries", "exploit", "twin", "ok"), *map(_columns, played)]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = ["  ".join([*map(str.ljust, row, widths), row[4]]) for row in rows]
    for backend, layers in missing.items():
        if layers:
            lines.append(f"{backend}: layers of the sandbox that this machine does not grant: {', '.join(layers)}")
    lines += [f"{backend}: left out: {why}" for backend, why in left_out.items()]
    skipped = sum(p.cheat.verdict == "skipped" for p in played)
    rejected, passed = sum(p.as_expected for p in played), sum(p.twin.verdict == "passed" for p in played)
    counts = f"{rejected} of {len(played)} exploits rejected for their reason, {passed} of {len(played)} twins passed"
    lines += [f"{p.case.backend}/{p.case.name}: known gap: {p.case.gap}" for p in played if p.gap]
    return "\n".join([*lines, counts + (f", {skipped} skipped" if skipped else "")])


def _columns(played: Played) -> tuple[str, str, str, str, str]:
    case = played.case
    ok = "yes" if played.ok else "NO"
    if played.gap and played.ok:
        ok = "known gap"
    elif played.cheat.verdict == "rejected" and not played.as_expected:
        ok = "NO: another reason"
    return (
        f"{case.backend}/{case.name}",
        _cut(case.tries, _TRIES),
        _cut(_shown(played.cheat), _REASON),
        played.twin.verdict if played.twin.verdict == "passed" else _cut(_shown(played.twin), _REASON),
        ok,
    )


def _shown(outcome: Outcome) -> str:
    by = f" by {outcome.by}" if outcome.by else ""
    return f"{outcome.verdict}{by}: {outcome.reason}" if outcome.reason else outcome.verdict


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
