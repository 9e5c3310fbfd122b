"""Before the first answer is asked for: the task is tested, the machine and the baseline are measured."""

from __future__ import annotations

from agent.artefacts import read_source, write_json
from agent.errors import ConfigError, UnfitEnvironment
from agent.events import AaMeasured, Evaluated, FloorFound, TaskChecked
from agent.run import Kernel, Run
from agent.stages.exploits import play_exploits
from agent.task import suspect_ms, work_of
from backends.types import Built, Rejected
from profiling.findings import Evaluation, TaskCheck
from profiling.harness.harness import Harness
from profiling.headroom import floor_ms


def measure_baseline(run: Run) -> Kernel:
    """Build, check and time the baseline, and find the smallest gain that can be claimed here.

    Raises:
        ConfigError, TaskError: the baseline does not build, crashes, hangs or is wrong, or the task itself is unfit.
    """
    built = _build(run)
    _check_task(run, built)
    _settle_floor(run)
    play_exploits(run)
    evaluation = _evaluate(run, built)
    assert evaluation.timing is not None
    write_json(run.folder / "baseline" / "bench.json", evaluation)
    source = read_source(run.task.baseline)
    kernel = Kernel("baseline", source, built, evaluation.timing.median_ms, run.epoch)
    measure_noise(run, 0, kernel)
    return kernel


def measure_noise(run: Run, iteration: int, kernel: Kernel) -> None:
    """The A/A spread, at the start and again whenever the best time has halved: short kernels are noisier."""
    measured = [e for e in run.journal.all(AaMeasured) if run.epoch_of_event(e) == kernel.epoch]
    if measured and kernel.median_ms > measured[-1].median_ms / 2:
        return

    def measure() -> AaMeasured:
        run.progress.activity(f"measuring the noise: {kernel.label} against itself")
        spread = run.harness.aa_spread(kernel.built.artifact)
        if isinstance(spread, Rejected):
            if not measured and spread.stage != "time":
                raise ConfigError(f"{kernel.label} cannot be compared with itself: {spread.reason}")
            if not measured:
                raise UnfitEnvironment(f"the noise cannot be measured here: {spread.reason}; is the machine busy?")
            run.note(run.key(iteration, "aa"), f"A/A spread not measured again for {kernel.label}: {spread.reason}")
            spread = measured[-1].spread
        return AaMeasured(key=run.key(iteration, "aa"), spread=spread, median_ms=kernel.median_ms)

    run.journal.once(AaMeasured, run.key(iteration, "aa"), measure)


def _build(run: Run) -> Built:
    run.progress.activity("building the baseline")
    built = run.build(run.task.baseline)
    if isinstance(built, Rejected):
        raise ConfigError(f"the baseline {run.task.baseline} does not build: {built.reason}")
    return built


def _check_task(run: Run, built: Built) -> None:
    if run.lab is None:
        return
    key = run.key(0, "task")

    def learn(lab: Harness) -> TaskCheck:
        run.progress.activity("testing the task: reference, tolerance, extra shapes")
        return lab.check_task(built.artifact)

    if run.journal.find(TaskChecked, key) is not None:
        run.before_measuring(learn)  # the oracle of this session has to learn the baseline's errors, too
        return
    found = learn(run.lab)
    run.journal.append(TaskChecked(key=key, check=found, work=work_of(run.task, found), notes=run.task.notes))


def _settle_floor(run: Run) -> None:
    """Floors need the work, which may stand in the reference alone: after the task check."""
    floor = floor_ms(run.work, run.ceilings, run.task.dtype)
    suspect = suspect_ms(run.work, run.ceilings, run.task, run.gpu)
    if run.lab is not None:
        run.lab.set_floor(suspect)
    key = run.key(0, "floor")
    found = FloorFound(key=key, floor_ms=floor, suspect_ms=suspect, arithmetic=run.task.dtype)
    run.journal.once(FloorFound, key, lambda: found)


def _evaluate(run: Run, built: Built) -> Evaluation:
    def evaluate() -> Evaluated:
        run.progress.activity("measuring the baseline")
        outcome = run.harness.evaluate(built.artifact)
        if outcome.verdict in ("suspect", "error"):
            raise UnfitEnvironment(f"the baseline cannot be timed here: {outcome.reason}; is the machine busy?")
        if outcome.verdict != "pass":
            raise ConfigError(f"the baseline is not usable ({outcome.verdict}): {outcome.reason}")
        return Evaluated(
            key=run.key(0, "baseline"), iteration=0, branch="baseline", build_s=built.seconds, outcome=outcome
        )

    outcome = run.journal.once(Evaluated, run.key(0, "baseline"), evaluate).outcome
    assert isinstance(outcome, Evaluation)
    return outcome
