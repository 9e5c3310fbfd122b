"""The end of an iteration: logged once, and what it left when the run is taken up again."""

from __future__ import annotations

from agent.events import BranchWritten, ChampionDecided, Evaluated, IterationEnded, IterationStatus
from agent.run import Kernel, Run, StopRun
from backends.types import Built, Rejected, ToolchainError
from profiling.findings import Evaluation


def end_iteration(run: Run, iteration: int, status: IterationStatus, reason: str) -> None:
    """Log the end of an iteration, if it has not ended."""
    key = f"iter{iteration}"
    run.journal.once(
        IterationEnded, key, lambda: IterationEnded(key=key, iteration=iteration, status=status, reason=reason)
    )


def kernel_after(run: Run, iteration: int, best: Kernel) -> Kernel:
    """The best kernel after an ended iteration: its champion if that was accepted, else the one before.

    Nothing is measured and no stop rule is asked: what an ended iteration decided stands.
    """
    decisions = [e for e in run.journal.all(ChampionDecided) if e.iteration == iteration]
    if not decisions or not decisions[-1].accepted:
        return best
    branch = decisions[-1].branch
    written = [e for e in run.journal.all(BranchWritten) if (e.iteration, e.branch) == (iteration, branch) and e.source]
    timed = [e.outcome for e in run.journal.all(Evaluated) if (e.iteration, e.branch) == (iteration, branch)]
    source, outcome = written[-1].source, timed[-1]
    assert source is not None
    assert isinstance(outcome, Evaluation)
    assert outcome.timing is not None
    path = run.branch_folder(written[-1]) / run.kernel_file
    built = run.build(path)
    if isinstance(built, Rejected):
        raise ToolchainError(f"{path} was accepted and no longer builds: {built.reason}; is the compiler another one?")
    assert isinstance(built, Built)
    return Kernel(f"iter{iteration}/{branch}", source, built, outcome.timing.median_ms, run.epoch_of(iteration))


def check_patience(run: Run, iteration: int) -> None:
    """Raise StopRun after `search.patience` iterations in a row without an accepted gain."""
    patience = run.search.patience
    ended = [e.status for e in run.journal.all(IterationEnded) if e.iteration <= iteration]
    if patience is not None and len(ended) >= patience and "accepted" not in ended[-patience:]:
        raise StopRun("patience", f"{patience} iterations without an accepted gain")
