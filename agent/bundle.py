"""`best/`: the winner with all that building and measuring it again needs, and a manifest that says what it should be.

The folder stands on its own: it may be moved, alone or with its run. Headers that the task includes from elsewhere are
not in it; a build that they change is told apart by its key.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.artefacts import write_json, write_text
from agent.config import BudgetSection, Config, MemorySection, dump_config
from agent.errors import ConfigError
from agent.machine import Machine
from backends.types import Rejected
from profiling.findings import Comparison

MANIFEST = "manifest.json"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Claim(_Part):
    """The recorded speedup of the winner over the baseline, with its 95% interval and their times, ms."""

    speedup: float
    low: float
    high: float
    baseline_ms: float
    best_ms: float


class Device(_Part):
    """What it was measured on; `driver` is None where it was no GPU."""

    id: str
    name: str
    arch: str
    driver: str | None

    @staticmethod
    def of(machine: Machine) -> Device:
        """This machine, as far as kernels see it."""
        driver = None if machine.gpu is None else machine.gpu.driver_version
        return Device(id=machine.id, name=machine.name, arch=machine.arch, driver=driver)


class Manifest(_Part):
    """What the bundle holds and what was claimed of it.

    Attributes:
        run: the run's name.
        task: the task's name.
        backend: how its kernels are built.
        origin: which kernel the winner is (`iter2/b3`), or `baseline`.
        kernel, baseline, reference, config: files of the bundle.
        sha256: of these files, by name.
        build_key: of the winner's build: sources, flags and compiler.
        claim: None where the final comparison gave none.
        least_gain: what a gain had to exceed: the larger of noise and A/A spread.
        device, versions: what it was measured on and with.
        verify_command, measure_command: check the claim, and measure the winner alone, in the folder `run_in`.
    """

    run: str
    task: str
    backend: str
    origin: str
    kernel: str
    baseline: str
    reference: str
    config: str
    sha256: Mapping[str, str]
    build_key: str
    claim: Claim | None
    least_gain: float
    device: Device
    versions: Mapping[str, str]
    verify_command: str
    measure_command: str
    run_in: str


def write_bundle(
    folder: Path, config: Config, source: str, shapes: Sequence[Mapping[str, int]], about: Mapping[str, object]
) -> None:
    """Write the bundle, the manifest last.

    Args:
        folder: `best`.
        config: of the run.
        source: the winner's text.
        shapes: hidden shapes of the run; they are among the checks of the bundle, since nobody writes kernels any more.
        about: of the manifest, what this module cannot know.

    Raises:
        OSError: it cannot be written.
    """
    section = config.task
    assert section.reference is not None
    suffix = section.baseline.suffix
    names = {
        "kernel": f"kernel{suffix}",
        "baseline": f"baseline{suffix}",
        "reference": "reference.py",
        "config": "config.yaml",
    }
    task = section.model_copy(
        update={
            "baseline": Path(names["baseline"]),
            "reference": Path(names["reference"]),
            "check_dims": (*section.check_dims, *shapes),
            "hidden_shapes": 0,
        }
    )
    plain = {"task": task, "llm": None, "budget": BudgetSection(), "memory": MemorySection(), "output": Path("runs")}
    write_text(folder / names["kernel"], source)
    shutil.copyfile(section.baseline, folder / names["baseline"])
    shutil.copyfile(section.reference, folder / names["reference"])
    dump_config(config.model_copy(update=plain), folder / names["config"])
    manifest = Manifest.model_validate(
        {
            "task": section.name,
            "backend": section.backend,
            **names,
            "sha256": {name: _digest(folder / name) for name in names.values()},
            "verify_command": "python -m agent verify .",
            "measure_command": f"python -m agent bench --config best/config.yaml --kernel best/{names['kernel']}",
            "run_in": "the run folder",
            **about,
        }
    )
    write_json(folder / MANIFEST, manifest)


def claim_of(comparison: Comparison | Rejected) -> Claim | None:
    """What the final comparison allows to say."""
    if isinstance(comparison, Rejected):
        return None
    c = comparison
    return Claim(speedup=c.speedup, low=c.low, high=c.high, baseline_ms=c.a_ms, best_ms=c.b_ms)


def read_bundle(folder: Path) -> Manifest:
    """The manifest of a bundle whose files are those that were written.

    Raises:
        ConfigError: no bundle, one of another version, or a file that is missing or was changed.
    """
    path = folder / MANIFEST
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}); a run has a bundle once it has ended: resume it first"
        ) from None
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"]) or "the file"
        raise ConfigError(f"{path}: is not a manifest of this version of Roofclimb (`{where}`)") from None
    for name, recorded in manifest.sha256.items():
        if Path(name).name != name:
            raise ConfigError(f"{path}: `{name}` is no file of the bundle")
        if not (folder / name).is_file():
            raise ConfigError(f"{folder / name}: is missing; the bundle cannot be verified")
        if _digest(folder / name) != recorded:
            raise ConfigError(
                f"{folder / name}: was changed since the run (its SHA-256 is not the manifest's); nothing was measured"
            )
    return manifest


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
