"""Measures landscapes: every combination of the method switches of some kernels, each against the task's baseline.

`.venv/bin/python benchmarks/landscape.py NAME …` measures entries of `benchmarks/data/landscapes.yaml` by name, or with
`--backend cpp` all of a backend, into `benchmarks/data/landscapes/NAME.json`. What was measured is kept after each
sitting; a file that is there goes on where it ended, `--anew` begins again. `--seconds` ends each landscape after the
sitting in which that time has passed (exit code 75: run it again to go on).

Each combination is a build with switches off, as an ablation is. One per machine code is verified at all shapes and
timed by the project's harness with all its walls, then interleaved with the baseline, several kernels in one sitting.
What did not build, was wrong, or changed no machine code is part of the landscape; what could not be judged (a busy
machine) is left out and tried again next time. `docs/memory_benefit.md` says what landscapes are for.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from itertools import combinations
from pathlib import Path

from landscape_data import BASELINE, FOLDER, Code, Gain, Identity, Landscape, Point, Refusal, Sitting, load, save
from landscape_sources import LIST, ROOT, KernelSource, Wanted, read_kernels, wanted_landscapes

from agent.artefacts import plain
from agent.config import Config
from agent.errors import ConfigError, RoofclimbError, UnfitEnvironment
from agent.faults import as_exit_codes
from agent.lab import Lab, backend_name, open_lab, timed
from agent.machine_code import MachineCode
from agent.stages.switches import switched_off
from backends.registry import get_backend
from backends.types import Built, Rejected
from memory.scope import derive_family, shape_class
from profiling.code_sites import is_padding
from profiling.findings import Comparison, Evaluation, MethodPresence
from profiling.machine_code import check_methods

SITTING = 8
"""Kernels that are interleaved with the baseline in one sitting."""

UNFINISHED = 75


@dataclass(slots=True)
class Survey:
    """A landscape as it grows."""

    found: Landscape
    path: Path
    deadline: float
    sitting_s: float = 0.0
    doubtful: list[str] = field(default_factory=list)

    def keep(self, **changed: object) -> None:
        """Add to the landscape and write it."""
        self.found = self.found.model_copy(update=changed)
        save(self.found, self.path)

    @property
    def late(self) -> bool:
        """Whether another sitting like the last would end after the deadline."""
        return time.monotonic() + self.sitting_s > self.deadline


def survey(name: str, wanted: Wanted, path: Path, seconds: float, anew: bool, note: str) -> bool:
    """Measure what is missing of a landscape; whether it is complete now.

    Raises:
        RoofclimbError: as the exit codes say.
    """
    begun = time.monotonic()
    config = wanted.load()
    kernels = read_kernels(wanted, config, get_backend(backend_name(config)))
    with open_lab(config) as lab, tempfile.TemporaryDirectory(prefix="roofclimb-landscape-") as scratch:
        found = _begin(name, wanted, config, lab, kernels)
        if path.is_file() and not anew:
            before = load(path)
            if before.identity != found.identity:
                raise ConfigError(f"{path}: was measured of other files, or elsewhere: --anew measures it again")
            found = before
        work = Survey(found, path, begun + seconds)
        if all(_complete(work.found, kernel) for kernel in kernels):
            return True
        baseline = lab.build_baseline()
        lab.check_task(baseline)
        timed(lab.task.baseline, lab.harness.evaluate(baseline.artifact))
        spread = lab.harness.aa_spread(baseline.artifact)
        if isinstance(spread, Rejected):
            raise UnfitEnvironment(f"the noise cannot be measured here: {spread.reason}; is the machine busy?")
        sitting = Sitting(started=_now(), commit=_commit(), aa_spread=spread, load=os.getloadavg()[0], note=note)
        work.keep(sittings=(*work.found.sittings, sitting))
        for kernel in kernels:
            if not _complete(work.found, kernel):
                _measure_kernel(work, lab, kernel, baseline, Path(scratch))
        complete = all(_complete(work.found, kernel) for kernel in kernels)
    print(f"{name}: {_told(work)}, {time.monotonic() - begun:.0f} s", flush=True)
    return complete


def _begin(name: str, wanted: Wanted, config: Config, lab: Lab, kernels: Sequence[KernelSource]) -> Landscape:
    task, section = lab.task, config.task
    assert section.reference is not None
    described = plain(config.model_dump(mode="json", include={"task": {"dims", "check_dims", "tensors", "tolerance"}}))
    identity = Identity(
        config=wanted.config,
        overrides=wanted.set,
        config_sha256=hashlib.sha256(repr(described).encode()).hexdigest(),
        baseline_sha256=hashlib.sha256(section.baseline.read_bytes()).hexdigest(),
        reference_sha256=hashlib.sha256(section.reference.read_bytes()).hexdigest(),
        device=lab.machine.name,
        versions={"roofclimb": version("roofclimb"), "python": platform.python_version(), **task.backend.toolchain()},
        kernels=tuple(kernel.about for kernel in kernels),
    )
    return Landscape(
        name=name,
        family=derive_family(section.name, section.family),
        backend=task.backend.name,
        arch=lab.machine.arch,
        shape_class=shape_class(section.dims),
        dims=dict(section.dims),
        noise=config.search.noise,
        measure=config.measure.model_dump(mode="json"),
        identity=identity,
    )


def subsets(methods: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """All combinations, none first, each in the order of the kernel."""
    for size in range(len(methods) + 1):
        yield from combinations(methods, size)


def _complete(found: Landscape, kernel: KernelSource) -> bool:
    points = [p for p in found.points if p.kernel == kernel.about.name]
    return len(points) == 2 ** len(kernel.about.methods) and all(found.outcome(p) is not None for p in points)


def _measure_kernel(work: Survey, lab: Lab, kernel: KernelSource, baseline: Built, scratch: Path) -> None:
    """Build a kernel's combinations, tell the machine codes apart, and measure those that are not known."""
    if work.late:
        return
    about = kernel.about
    source = scratch / f"{about.name}{lab.task.backend.suffix}"
    source.write_text(kernel.text, encoding="utf-8")
    chosen = list(subsets(about.methods))
    specs = [switched_off(lab.task.spec, [m for m in about.methods if m not in on]) for on in chosen]
    builds = lab.build([(source, spec) for spec in specs])
    machine_code = MachineCode(lab.task.backend)
    with ThreadPoolExecutor(max_workers=max(1, lab.machine.cpu.usable_cores or 1)) as pool:
        list(pool.map(machine_code.device, [b for b in builds if isinstance(b, Built)]))  # to have them at hand
    codes = _Codes(machine_code, baseline)
    points: list[Point] = []
    measured = dict(work.found.codes)
    todo: dict[str, Built] = {}
    for on, built in zip(chosen, builds, strict=True):
        label = f"{about.name}: {' + '.join(on) or 'all off'}"
        if isinstance(built, Rejected):
            if built.stage in ("signature", "build", "load"):
                measured[label] = Code(refused=_refusal(built), measured=_now())
            points.append(Point(kernel=about.name, methods=on, code=label))
            continue
        code = codes.name(label, built)
        presence = {p.method: p.verdict for p in codes.presence(on, built)}
        points.append(Point(kernel=about.name, methods=on, code=code, presence=presence))
        if code != BASELINE and code not in measured:
            todo.setdefault(code, built)
    others = tuple(p for p in work.found.points if p.kernel != about.name)
    work.keep(points=(*others, *points), codes=measured)
    labels = list(todo)
    for first in range(0, len(labels), SITTING):
        if work.late:
            return
        some = {label: todo[label] for label in labels[first : first + SITTING]}
        _sit(work, lab, baseline, some)


class _Codes:
    """Tells machine codes apart. The name of one is that of the first combination that has it."""

    def __init__(self, code: MachineCode, baseline: Built) -> None:
        self._code = code
        self._baseline = baseline
        self._known: dict[int, list[tuple[str, Built]]] = {}
        self.name(BASELINE, baseline)

    def name(self, label: str, built: Built) -> str:
        """The known code's name, or `label` for a new one. Without a disassembler each build is taken for new."""
        alike = self._known.setdefault(self._opcodes(built), [])
        for known, other in alike:
            if self._code.differs(built, other) is False:
                return known
        alike.append((label, built))
        return label

    def presence(self, methods: Sequence[str], built: Built) -> tuple[MethodPresence, ...]:
        """Machine-code evidence of methods against the baseline."""
        return check_methods(methods, self._code.device(self._baseline), self._code.device(built))

    def _opcodes(self, built: Built) -> int:
        """Equal for equal code: whole listings are compared only where these are."""
        listing = self._code.device(built)
        functions = () if listing is None else listing.functions
        return hash(tuple(i.opcode for f in functions for i in f.instructions if not is_padding(i)))


def _sit(work: Survey, lab: Lab, baseline: Built, some: dict[str, Built]) -> None:
    """Verify and time kernels, then interleave those that passed with the baseline."""
    start = time.monotonic()
    outcomes = dict(zip(some, lab.harness.evaluate_each([b.artifact for b in some.values()]), strict=True))
    passed = [label for label, outcome in outcomes.items() if outcome.verdict == "pass"]
    compared = lab.harness.compare_all([(baseline.artifact, some[label].artifact) for label in passed])
    gains = dict(zip(passed, compared, strict=True))
    measured = dict(work.found.codes)
    for label, outcome in outcomes.items():
        code = _judged(outcome, gains.get(label))
        if code is None:
            work.doubtful.append(label)
        else:
            measured[label] = code
    work.sitting_s = time.monotonic() - start
    work.keep(codes=measured)
    print(f"  {len(measured)} codes, {work.sitting_s:.0f} s for {', '.join(some)}", flush=True)


def _judged(outcome: Evaluation, gain: Comparison | Rejected | None) -> Code | None:
    """None: neither the kernel's merit nor its fault (a busy machine, a worker that did not start)."""
    if outcome.verdict == "fail":
        return Code(refused=Refusal(stage="verify", reason=outcome.reason or "wrong"), measured=_now())
    if isinstance(gain, Rejected) and gain.stage != "time":
        return Code(refused=_refusal(gain), measured=_now())
    if not isinstance(gain, Comparison) or outcome.timing is None:
        return None
    numbers = {name: getattr(gain, name) for name in Gain.model_fields}
    return Code(gain=Gain(**numbers), median_ms=outcome.timing.median_ms, measured=_now())


def _refusal(rejected: Rejected) -> Refusal:
    return Refusal.model_validate({"stage": rejected.stage, "reason": rejected.reason})


def _told(work: Survey) -> str:
    found = work.found
    gains = [c.gain.speedup for c in found.codes.values() if c.gain]
    refused = sum(c.refused is not None for c in found.codes.values())
    best = f", best {max(gains):.2f}x" if gains else ""
    doubt = f", {len(work.doubtful)} in doubt" if work.doubtful else ""
    return f"{len(found.points)} points, {len(gains)} codes timed, {refused} refused{doubt}{best}"


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _commit() -> str | None:
    git = ["git", "-C", str(ROOT)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changed.stdout.strip() else "")


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description="Measure landscapes of method switches.")
    parser.add_argument("names", nargs="*", help=f"entries of {LIST.relative_to(ROOT)}")
    parser.add_argument("--backend", action="append", default=[], help="all entries of this backend")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end each after about this long")
    parser.add_argument("--anew", action="store_true", help="measure again what is there")
    parser.add_argument("--note", default="", help="kept with the numbers: what else the machine was doing")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder of the files")
    asked = parser.parse_args()
    try:
        wanted = wanted_landscapes()
        names = [*asked.names, *(n for n, w in wanted.items() if backend_name(w.load()) in asked.backend)]
        unknown = [name for name in names if name not in wanted]
        if unknown or not names:
            problem = f"no landscape {unknown[0]!r}" if unknown else "name a landscape, or a --backend"
            raise ConfigError(f"{problem}; there are {', '.join(wanted)}")
        complete = True
        for name in dict.fromkeys(names):
            with as_exit_codes():
                path = asked.output / f"{name}.json"
                complete &= survey(name, wanted[name], path, asked.seconds, asked.anew, asked.note)
    except RoofclimbError as error:
        print(f"landscape: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    sys.exit(0 if complete else UNFINISHED)


if __name__ == "__main__":
    main()
