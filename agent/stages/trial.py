"""The run's own harness is tried on known exploits before any of its numbers is believed."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from agent.artefacts import read_source
from agent.errors import HarnessBroken, UnfitEnvironment
from agent.events import ExploitsPlayed
from agent.run import Run
from agent.task import Task
from backends.triton import TritonBackend
from backends.types import Built, Rejected
from profiling.redteam.quick import NAMES, cheat_source
from profiling.types import Evaluation


class Judge(Protocol):
    """What says whether a kernel is right: the harness."""

    def evaluate(self, artifact: Path) -> Evaluation:
        """The verdict on a built kernel."""
        ...


def play_exploits(run: Run) -> None:
    """Once on each device of a run: no kernel that does nothing, computes once or computes late may pass.

    Raises:
        HarnessBroken: one passed.
        UnfitEnvironment: one could not be judged.
    """
    if run.lab is None:
        return
    lab, key = run.lab, run.key(0, "exploits")

    def play() -> ExploitsPlayed:
        run.progress.activity("trying the harness on known exploits")
        cheats, left_out = build_exploits(run.task, run.cache)
        rejected = rejections(lab, {"no_op": lab.empty, **cheats}, run.task.backend.name)
        return ExploitsPlayed(key=key, rejected=rejected, left_out=left_out)

    run.journal.once(ExploitsPlayed, key, play)


def rejections(judge: Judge, cheats: Mapping[str, Path], backend: str) -> dict[str, str]:
    """For each exploit, why it was rejected.

    Raises:
        HarnessBroken: one passed.
        UnfitEnvironment: one could not be judged.
    """
    reasons = {}
    for name, artifact in cheats.items():
        found = judge.evaluate(artifact)
        if found.verdict == "error":
            raise UnfitEnvironment(f"the exploit {name} cannot be judged here: {found.reason}; is the machine busy?")
        if found.verdict not in ("fail", "suspect"):
            raise HarnessBroken(
                f"the known exploit {name} passed on this task, so no number of this machine can be believed; "
                f"see `python -m agent redteam --backend {backend}`, and report it"
            )
        reasons[name] = found.reason or found.verdict
    return reasons


def build_exploits(task: Task, cache: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """The exploits made of the baseline, built; and those that cannot be, with the reason.

    Raises:
        ToolchainError: the compiler is missing or broken.
    """
    triton = isinstance(task.backend, TritonBackend)
    baseline = read_source(task.baseline)

    def build(name: str) -> Built | Rejected:
        source = Path(folder) / f"{name}{task.backend.suffix}"
        source.write_text(cheat_source(name, baseline, task.signature, triton=triton), encoding="utf-8")
        built = task.backend.build(source, task.spec, cache)
        if isinstance(built, Built) and isinstance(task.backend, TritonBackend) and task.backend.needs_tuning(built):
            return Rejected("build", "its autotuners would have to choose first")
        return built

    with tempfile.TemporaryDirectory(prefix="roofclimb-") as folder, ThreadPoolExecutor() as pool:
        builds = dict(zip(NAMES, pool.map(build, NAMES), strict=True))
    made = {name: built.artifact for name, built in builds.items() if isinstance(built, Built)}
    return made, {name: built.reason for name, built in builds.items() if isinstance(built, Rejected)}
