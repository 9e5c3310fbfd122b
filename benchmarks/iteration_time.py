"""Where the time of one iteration goes: four branches, their ablations and a targeted profile, stage by stage.

Run it on a machine with a GPU: `.venv/bin/python benchmarks/iteration_time.py`. It plays the recorded answers of the
first iteration of `configs/gemm.yaml` at 2048 x 2048 x 2048, so no model is waited for, and all safety layers are on.
With a run folder as argument it itemises that run instead (there, waiting for the model is a stage of its own).

Set-up (what a run does once) is listed apart, and so is what an accepted champion costs on top. Times depend on the
machine; `docs/performance.md` has them for an H200.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from agent import events as ev
from agent.config import load_config
from agent.events import AnyEvent
from agent.journal import Journal, read_events
from agent.loop import iterate
from agent.paths import cache_folder, find_config
from agent.progress import make_progress
from agent.run_folder import copy_inputs
from agent.session import open_run
from agent.stages.baseline import measure_baseline
from agent.task import prepare_task

OVERRIDES = (
    "task.dims={M: 2048, N: 2048, K: 2048}",
    "search.near_peak=0",
    'memory.url="sqlite:///:memory:"',
)
Row = tuple[str, str, float]
"""Part (`set-up`, `iteration`, `accepted`), stage, seconds."""


def stage_of(event: AnyEvent) -> str | None:
    """What the time since the event before was spent on; None where nothing was measured or asked."""
    names = {
        ev.SessionStarted: "oracle, harness, one counter read",
        ev.CeilingsMeasured: "ceilings (cached)",
        ev.TaskChecked: "task check: wrong answers rejected, baseline's errors learned",
        ev.AaMeasured: "A/A spread",
        ev.ExploitsPlayed: "known exploits tried",
        ev.ShapesDrawn: "hidden shapes drawn",
        ev.MachineCodeChecked: "machine code disassembled and checked",
        ev.ReplyReceived: "model",
    }
    if isinstance(event, ev.Evaluated):
        return "build, verify and time the branches" if event.iteration else f"verify and time {event.branch}"
    if isinstance(event, ev.Sanitized):
        return f"sanitizers over {event.kernel}"
    if isinstance(event, ev.Profiled):
        return f"profile ({event.profile.source}, {event.profile.level})"
    if isinstance(event, ev.AblationBuilt):
        return "ablations built, code compared"
    if isinstance(event, ev.Compared):
        return "best kernel, champion and ablations interleaved" if event.iteration else f"A/B {event.a} / {event.b}"
    return names.get(type(event))


def rows(events: Sequence[AnyEvent]) -> Iterator[Row]:
    """Seconds by stage, in the order in which they passed."""
    part, before = "set-up", 0.0
    accepted = False
    for event in events:
        spent, before = event.elapsed_s - before, event.elapsed_s
        if isinstance(event, ev.ChampionDecided):
            accepted = event.accepted
        targeted = isinstance(event, ev.Profiled) and event.profile.level == "targeted"
        if targeted or getattr(event, "iteration", 0) > 0:
            part = "iteration"
        # Sanitizers run once the times would accept a champion, and decide with them.
        extra = isinstance(event, ev.Sanitized) or (accepted and isinstance(event, ev.Profiled | ev.AaMeasured))
        yield ("accepted" if extra else part), stage_of(event) or "bookkeeping", spent
        if isinstance(event, ev.IterationEnded):
            accepted = False


def table(found: Sequence[Row]) -> str:
    """Stages with more than 5 ms, equal ones together, and the sum of each part."""
    lines = []
    for part in ("set-up", "iteration", "accepted"):
        stages: dict[str, float] = {}
        for where, stage, seconds in found:
            if where == part:
                stages[stage] = stages.get(stage, 0.0) + seconds
        lines += [f"{part}: {sum(stages.values()):.2f} s"]
        lines += [f"  {seconds:7.2f} s  {stage}" for stage, seconds in stages.items() if seconds > 0.005]
    return "\n".join(lines)


def play(folder: Path) -> Sequence[AnyEvent]:
    """One iteration with recorded answers."""
    config = load_config(find_config("gemm"), OVERRIDES)
    copy_inputs(config, prepare_task(config), folder)
    journal = Journal(folder)
    progress = make_progress(sys.stderr, 1)
    try:
        with open_run(folder, journal, progress, threading.Event(), load_config(folder / "config.yaml")) as run:
            run.best = baseline = measure_baseline(run)
            iterate(run, 1, baseline)
        return journal.events
    finally:
        progress.close()
        journal.close()


def main() -> None:
    if len(sys.argv) > 1:
        print(table(list(rows(read_events(Path(sys.argv[1]) / "events.jsonl")[0]))))
        return
    with tempfile.TemporaryDirectory(prefix="roofclimb-benchmark-") as scratch:
        os.environ["XDG_CACHE_HOME"] = scratch
        for attempt in (
            "first (compilers and caches cold)",
            "second (harness built, ceilings and the baseline's sanitizer findings cached)",
        ):
            folder = Path(scratch) / attempt.split()[0]
            folder.mkdir()
            start = time.monotonic()
            found = list(rows(play(folder)))
            print(f"{attempt}: {time.monotonic() - start:.1f} s in all\n{table(found)}\n", flush=True)
            shutil.rmtree(cache_folder() / "builds")  # every kernel is compiled each time


if __name__ == "__main__":
    main()
