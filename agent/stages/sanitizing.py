"""The sanitizers over a champion that its times would accept, and over the baseline that it is held against."""

from __future__ import annotations

from pathlib import Path

from agent.artefacts import write_json
from agent.events import ChampionDecided, Sanitized, TaskChecked
from agent.paths import cache_folder, iteration_folder
from agent.run import Kernel, Run
from backends.types import Built, Rejected
from profiling.sanitizers.check import Sanitizers
from profiling.sanitizers.findings import CERTAIN, Finding, SanitizerReport
from profiling.sanitizers.kept import Kept


def sanitize(run: Run, iteration: int, champion: Kernel, source: Path) -> Rejected | None:
    """Why the sanitizers keep a champion out, or None: nothing that counts was found, or no tool could look.

    Args:
        run: the run.
        iteration: from 1.
        champion: what would replace the best kernel.
        source: its file.
    """
    key = run.key(iteration, "sanitized")
    decided = run.journal.find(ChampionDecided, run.key(iteration, "decision")) is not None
    if not run.task.config.measure.sanitize or (decided and run.journal.find(Sanitized, key) is None):
        return None  # what was decided without them stands
    baseline = _of_baseline(run)
    found = _once(run, key, iteration, champion.label, source, champion.built)
    write_json(iteration_folder(run.folder, iteration) / "sanitizers.json", found)
    return verdict(found, baseline)


def verdict(champion: SanitizerReport, baseline: SanitizerReport) -> Rejected | None:
    """What rejects: any finding of a tool that is certain; of the others where the baseline was seen to be clean."""
    against = [f for f in champion.findings if f.tool in CERTAIN or f.tool in baseline.clean]
    if not against:
        return None
    more = f" (and {len(against) - 1} more)" if len(against) > 1 else ""
    return Rejected("verify", f"a sanitizer rejects it: {against[0]}{more}", lines(against))


def lines(findings: list[Finding] | tuple[Finding, ...]) -> str:
    """One finding a line."""
    return "\n".join(map(str, findings))


def _of_baseline(run: Run) -> SanitizerReport:
    """The baseline's report: whose hazards are its own. Its faults are noted for people.

    It is made once in a run, and of what an earlier run found of the same build at the same shape.
    """
    known = run.journal.find(Sanitized, "sanitized/baseline")
    if known is not None:
        return known.report
    built = run.build(run.task.baseline)
    assert isinstance(built, Built), "it was built and measured before"
    driver = "" if run.gpu is None else str(run.gpu.driver_version)
    threads = str(run.task.config.device.threads)
    kept = Kept(cache_folder() / "sanitizers", (built.key, run.task.baseline.name, run.machine.id, driver, threads))
    found = _once(run, "sanitized/baseline", 0, "baseline", run.task.baseline, built, kept)
    if found.findings:
        run.note("sanitized/baseline", f"sanitizers find in the baseline itself: {'; '.join(map(str, found.findings))}")
    return found


def _once(
    run: Run, key: str, iteration: int, label: str, source: Path, built: Built, kept: Kept | None = None
) -> SanitizerReport:
    def check() -> Sanitized:
        run.check_interrupted()
        run.progress.activity(f"running {label} under sanitizers")
        task = run.task
        checked = run.journal.all(TaskChecked)[-1].check
        sanitizers = Sanitizers(
            harness=run.harness,
            problem=task.problem,
            backend=task.backend,
            spec=task.spec,
            cache=run.cache,
            threads=task.config.device.threads,
            dropped=[dims for dims, why in checked.dropped_checks if why.startswith("declared inputs")],
        )
        return Sanitized(key=key, iteration=iteration, kernel=label, report=sanitizers.check(source, built, kept))

    found = run.journal.once(Sanitized, key, check).report
    for missing in found.unavailable:
        run.note(f"sanitizers/{missing.tool}", f"not checked by the sanitizer {missing.tool}: {missing.reason}")
    return found
