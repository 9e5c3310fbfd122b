"""`verify`: a run's winner built and measured again from its bundle, and whether the recorded speedup holds.

Two intervals of one true ratio, taken on different days, differ by what neither saw: clocks, temperature, neighbours.
So each is widened by the least gain of its run (the larger of noise and A/A spread) before they are held together. A
claim that does not hold ends with exit code 5, as an exploit that passes does: the harness said what is not so. One
that cannot be decided here (another kind of device, times that are not to be had) ends with 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from agent.artefacts import plain
from agent.bundle import MANIFEST, Claim, Device, Manifest, read_bundle
from agent.config import load_config
from agent.errors import ConfigError, HarnessBroken, UnfitEnvironment
from agent.lab import Lab, Measured, open_lab
from agent.report import fmt
from backends.types import Rejected
from profiling.findings import Comparison, Evaluation

Finding = Literal["holds", "exceeded", "missed", "wrong", "undecided", "no claim"]


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of it.

    Attributes:
        finding: `holds` and `exceeded` confirm the claim; `missed` and `wrong` refute it; `undecided` does neither.
        reason: one line.
        measured: what was measured here, None where nothing could be.
        notes: how this measurement differs from the recorded one.
    """

    finding: Finding
    reason: str
    measured: Comparison | None = None
    notes: tuple[str, ...] = ()


def verify(run_dir: Path) -> tuple[Mapping[str, Any], str]:
    """Verify the claim of a run folder, or of a bundle alone.

    Raises:
        ConfigError: no bundle there, or a file of it is not the one that was written.
        UnfitEnvironment: nothing can be said on this machine.
        HarnessBroken: the claim does not hold.
    """
    if not run_dir.is_dir():
        raise ConfigError(f"{run_dir}: no such folder; name a run's folder, or its bundle (best/)")
    folder = run_dir if (run_dir / MANIFEST).is_file() else run_dir / "best"
    manifest = read_bundle(folder)
    found = _verify(folder, manifest)
    result = {
        "run": manifest.run,
        "finding": found.finding,
        "reason": found.reason,
        "recorded": plain(manifest.claim),
        "measured": None if found.measured is None else plain(_claim(found.measured)),
        "least_gain": manifest.least_gain,
        "notes": list(found.notes),
    }
    text = "\n".join([f"{manifest.run}: {found.reason}", *found.notes])
    if found.finding in ("missed", "wrong"):
        raise HarnessBroken(f"the recorded speedup does not hold: {found.reason}", found=(result, text))
    if found.finding == "undecided":
        raise UnfitEnvironment(f"nothing can be said here: {found.reason}", found=(result, text))
    return result, text


def judge(claim: Claim, measured: Comparison, least_gain: float) -> tuple[Finding, str]:
    """The recorded interval against the measured one, each widened by `least_gain`."""
    recorded = fmt.speedup(claim.speedup, claim.low, claim.high)
    here = fmt.speedup(measured.speedup, measured.low, measured.high)
    margin = (1 + least_gain) ** 2
    said = f"recorded {recorded}, measured again {here}"
    if measured.high * margin < claim.low:
        return "missed", f"{said}: the intervals, each widened by {fmt.percent(least_gain)}, do not meet"
    if measured.low <= 1 + least_gain < claim.low:
        return "undecided", f"{said}: too noisy here to show a gain at all"
    if measured.low > claim.high * margin:
        return "exceeded", f"{said}: more than was claimed"
    return "holds", f"{said}: the speedup holds"


def _verify(folder: Path, manifest: Manifest) -> Verified:
    if manifest.claim is None:
        return Verified("no claim", "the run claimed no speedup, and its files are unchanged; nothing was measured")
    config = load_config(folder / manifest.config)
    with open_lab(config) as lab:
        notes = _differences(manifest, lab)
        measured = lab.measure(folder / manifest.kernel)
        return _judged(manifest, manifest.claim, lab, measured, notes)


def _differences(manifest: Manifest, lab: Lab) -> list[str]:
    """How this machine is not the one of the run, one line each."""
    here, then, found = Device.of(lab.machine), manifest.device, []
    if here.id != then.id:
        found.append(f"measured on {here.name} ({here.id}), recorded on {then.name} ({then.id})")
    if here.driver != then.driver:
        found.append(f"the driver is {here.driver}, was {then.driver}")
    tools = lab.task.backend.toolchain()
    for tool, version in manifest.versions.items():
        if tool in tools and tools[tool] != version:
            found.append(f"{tool} is {tools[tool]}, was {version}")
    return found


def _judged(manifest: Manifest, claim: Claim, lab: Lab, measured: Measured, notes: list[str]) -> Verified:
    outcome = measured.outcome
    if isinstance(outcome, Rejected):
        return Verified(
            "undecided", f"the winner is not built here: {outcome.stage}: {outcome.reason}", None, tuple(notes)
        )
    if measured.built is not None and measured.built.key != manifest.build_key:
        notes.append("the build is not the recorded one: its compiler, its flags or a header differ")
    if outcome.verdict == "fail":
        return Verified("wrong", f"the winner is wrong: {outcome.reason}", None, tuple(notes))
    if not isinstance(outcome, Evaluation) or outcome.verdict != "pass":
        return Verified(
            "undecided", f"the winner cannot be timed ({outcome.verdict}): {outcome.reason}", None, tuple(notes)
        )
    assert measured.built is not None
    assert measured.baseline is not None
    compared = lab.harness.compare(measured.baseline.artifact, measured.built.artifact)
    if isinstance(compared, Rejected):
        finding: Finding = "undecided" if compared.stage == "time" else "wrong"
        return Verified(finding, f"baseline and winner cannot be compared: {compared.reason}", None, tuple(notes))
    if (lab.machine.name, lab.machine.arch) != (manifest.device.name, manifest.device.arch):
        here = fmt.speedup(compared.speedup, compared.low, compared.high)
        reason = f"{here} on {lab.machine.name}, which is not what the claim is about ({manifest.device.name})"
        return Verified("undecided", reason, compared, tuple(notes))
    return Verified(*judge(claim, compared, manifest.least_gain), compared, tuple(notes))


def _claim(measured: Comparison) -> Claim:
    return Claim(
        speedup=measured.speedup,
        low=measured.low,
        high=measured.high,
        baseline_ms=measured.a_ms,
        best_ms=measured.b_ms,
    )
