"""A process of its own that works on a Ray cluster and says in one JSON line what came of it.

`python -m tests.loop.ray_work FOLDER ADDRESS`. Its last evaluation is to be disturbed from outside: by then
`FOLDER/evaluating` is there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from agent.config_executor import ExecutorSection
from agent.executors.local import LocalExecutor
from agent.executors.ray_cluster import RayExecutor
from agent.executors.types import EvaluateTask
from agent.task import build_candidate, open_harness
from backends.types import Built
from tests.loop.scenario import BROKEN, kernel
from tests.unit.agent.executors.bench import Bench


def main(folder: Path, address: str) -> None:
    """Build two kernels, evaluate one, and build again."""
    bench = Bench.make(folder)
    good, bad = bench.written("good", kernel(2)), bench.written("bad", BROKEN)
    builds = folder / "home" / "builds"
    with open_harness(bench.task, bench.machine, folder / "cache") as home:
        home.check_task(bench.baseline.artifact)
        local = LocalExecutor(lambda t: build_candidate(bench.task, t.source, t.spec, builds), home, 1)
        section = ExecutorSection(kind="ray", address=address, retries=1, resources={"GPU": 1.0})
        store = folder / "parcels"
        executor = RayExecutor(section, bench.writer, local, store, on_gpu=False, threads=1, stopped=lambda: False)
        try:
            executor.prepare(bench.setting)
            built, broken = (executor.build(task).result() for task in (good, bad))
            assert isinstance(built, Built), built
            before = len(executor.troubles())
            going = executor.evaluate(EvaluateTask((built,), bench.baseline, 1.0))
            (folder / "evaluating").touch()
            found = going.result()
            again = executor.build(good).result()
            result = {
                "key": built.key,
                "from_the_cluster": built.artifact.is_relative_to(store),
                "broken": broken.kind,
                "troubles_before": before,
                "verdict": found.evaluations[0].verdict,
                "at_home": found.elsewhere is None,
                "places": executor.places,
                "again": again.kind,
                "troubles": sorted({(t.task or "").partition(" ")[0] for t in executor.troubles()}),
            }
        finally:
            executor.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
