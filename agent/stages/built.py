"""That the branches are built, told to who looks on: after this they are verified and timed."""

from __future__ import annotations

from collections.abc import Sequence

from agent.events import BranchesBuilt, BranchWritten
from agent.run import Run
from backends.types import Built, Rejected


def log_builds(run: Run, iteration: int, written: Sequence[BranchWritten], builds: Sequence[Built | Rejected]) -> None:
    """Log once how the builds of these branches, or of one round of repairs, went."""
    if not written:
        return
    attempt = written[0].key.rpartition("/")[2] if "/repair" in written[0].key else "branches"
    key = run.key(iteration, f"built/{attempt}")
    seconds = {
        branch.branch: built.seconds if isinstance(built, Built) else None
        for branch, built in zip(written, builds, strict=True)
    }
    run.journal.once(BranchesBuilt, key, lambda: BranchesBuilt(key=key, iteration=iteration, seconds=seconds))
