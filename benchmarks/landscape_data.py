"""A measured landscape: every combination of some kernels' method switches, each with its time against the baseline.

`landscape.py` measures and writes them, `memory_benefit.py` replays them. One JSON file holds one task.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from agent.atomic import write_atomic
from profiling.findings import Comparison

FOLDER = Path(__file__).resolve().parent / "data" / "landscapes"
BASELINE = "baseline"
"""The code of a point that is the baseline's own machine code."""

PresenceVerdict = Literal["verified", "absent", "unavailable", "none"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Gain(_Model):
    """The baseline (a) against a kernel (b), interleaved: `profiling.findings.Comparison` without its raw ratios."""

    speedup: float = Field(gt=0)
    low: float = Field(gt=0)
    high: float = Field(gt=0)
    a_ms: float
    b_ms: float
    delta_ms: float
    delta_low_ms: float
    delta_high_ms: float

    def comparison(self) -> Comparison:
        """As the loop's stages take it."""
        return Comparison(**self.model_dump(), log_ratios=())


class Refusal(_Model):
    """Why a kernel has no time: it did not build, or was wrong. `stage` and `reason` are those of `Rejected`."""

    stage: Literal["signature", "build", "load", "verify", "time"]
    reason: str


class Code(_Model):
    """What came of one machine code: a gain or a refusal.

    Attributes:
        gain: None where it was refused.
        refused: None where it was measured.
        median_ms: its time alone, when it was verified.
        measured: when, UTC.
    """

    gain: Gain | None = None
    refused: Refusal | None = None
    median_ms: float | None = None
    measured: str


class Point(_Model):
    """One combination of switches.

    Attributes:
        kernel: whose switches; methods: those that are on.
        code: which of `Landscape.codes` it is; several points may be one machine code.
        presence: machine-code verdict of each method against the baseline; empty where nothing was built.
    """

    kernel: str
    methods: tuple[str, ...]
    code: str
    presence: dict[str, PresenceVerdict] = {}


class SwitchedKernel(_Model):
    """A kernel with switches, the parameters its methods were planned with, and its hash."""

    name: str
    origin: str
    sha256: str
    methods: tuple[str, ...]
    parameters: dict[str, dict[str, str | int | float | bool]] = {}


class Identity(_Model):
    """What has to be equal for measurements to be of one landscape, and so for measuring to go on."""

    config: str
    overrides: tuple[str, ...]
    config_sha256: str
    baseline_sha256: str
    reference_sha256: str
    device: str
    versions: dict[str, str]
    kernels: tuple[SwitchedKernel, ...]


class Sitting(_Model):
    """One start of `landscape.py`: when, on which commit, how noisy and how busy the machine was.

    Attributes:
        commit: of the working tree, with `+` where files differed from it; None where there is no repository.
        aa_spread: the baseline against its own copy, as a fraction.
        load: runnable processes of the host at its start (one-minute average).
        note: in the words of whoever measured.
    """

    started: str
    commit: str | None
    aa_spread: float
    load: float
    note: str = ""


class Landscape(_Model):
    """All that was measured of one task.

    Attributes:
        family, backend, arch, shape_class: its scope in strategy memory.
        noise: `search.noise` of the config: no smaller gain is claimed.
        measure: the settings in force.
    """

    format: Literal["roofclimb-landscape"] = "roofclimb-landscape"
    version: Literal[1] = 1
    name: str
    family: str
    backend: str
    arch: str
    shape_class: str
    dims: dict[str, int]
    noise: float
    measure: dict[str, str | int | float | bool | None]
    identity: Identity
    sittings: tuple[Sitting, ...] = ()
    points: tuple[Point, ...] = ()
    codes: dict[str, Code] = {}

    @property
    def smallest_gain(self) -> float:
        """As in a run: the larger of `noise` and the A/A spread, here the noisiest sitting's."""
        return max([self.noise, *(s.aa_spread for s in self.sittings)])

    @cached_property
    def by_place(self) -> Mapping[tuple[str, frozenset[str]], Point]:
        """Points by kernel and methods."""
        return {(p.kernel, frozenset(p.methods)): p for p in self.points}

    def outcome(self, point: Point) -> Comparison | Refusal | None:
        """The baseline against a point's kernel; None where nothing is known yet.

        The baseline's own machine code is as fast as the baseline, within the noise.
        """
        if point.code == BASELINE:
            wide = 1 + self.smallest_gain
            return Comparison(1.0, 1 / wide, wide, 1.0, 1.0, 0.0, 0.0, 0.0, ())
        code = self.codes.get(point.code)
        if code is None:
            return None
        return code.refused if code.gain is None else code.gain.comparison()


def between(without: Comparison, with_it: Comparison) -> Comparison:
    """One kernel (a) against another (b), from the comparison of each with the baseline.

    Their log-ratios are subtracted and the half-widths of the intervals added in quadrature, as for independent
    measurements; they share the baseline's samples at most, so that the interval is rather too wide.
    """
    ratio = math.log(with_it.speedup) - math.log(without.speedup)
    down = math.hypot(math.log(with_it.speedup / with_it.low), math.log(without.high / without.speedup))
    up = math.hypot(math.log(with_it.high / with_it.speedup), math.log(without.speedup / without.low))
    speedup, low, high = (math.exp(value) for value in (ratio, ratio - down, ratio + up))
    ms = with_it.b_ms
    return Comparison(
        speedup, low, high, ms * speedup, ms, ms * (speedup - 1), ms * (low - 1), ms * (high - 1), log_ratios=()
    )


def load(path: Path) -> Landscape:
    """Read a landscape. Raises ValueError (pydantic's): not one, or of another version."""
    return Landscape.model_validate_json(path.read_bytes())


def load_all(folder: Path = FOLDER) -> tuple[Landscape, ...]:
    """Every landscape of a folder, by name."""
    return tuple(load(path) for path in sorted(folder.glob("*.json")))


def save(landscape: Landscape, path: Path) -> None:
    """Write a landscape atomically: a killed measurement keeps what it had."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, landscape.model_dump_json(indent=1) + "\n")
