"""The champion: the iteration's fastest correct branch, and whether it may replace the best kernel."""

from __future__ import annotations

from agent.artefacts import write_json, write_text
from agent.events import ChampionDecided
from agent.paths import iteration_folder
from agent.run import Kernel, Run
from agent.stages.sanitizing import sanitize
from backends.types import Rejected
from profiling.findings import Comparison


def decide(
    run: Run, iteration: int, champion: Kernel, comparison: Comparison | Rejected
) -> tuple[ChampionDecided, Comparison | Rejected]:
    """Only an interleaved A/B of best and champion whose interval clears the noise replaces the best kernel.

    One that does is held to the sanitizers first. What they reject has no comparison that counts.
    """
    folder = iteration_folder(run.folder, iteration)
    write_text(folder / run.kernel_file, champion.source)
    write_json(folder / "bench.json", comparison)
    accepted, reason = accepts(comparison, run.smallest_gain)
    unsound = sanitize(run, iteration, champion, folder / run.kernel_file) if accepted else None
    if unsound is not None:
        accepted, reason, comparison = False, f"{unsound.reason}; by its times it had won: {reason}", unsound
    key = run.key(iteration, "decision")
    decided = run.journal.once(
        ChampionDecided,
        key,
        lambda: ChampionDecided(
            key=key, iteration=iteration, branch=champion.label.rpartition("/")[2], accepted=accepted, reason=reason
        ),
    )
    return decided, comparison


def accepts(comparison: Comparison | Rejected, smallest_gain: float) -> tuple[bool, str]:
    """Whether b may be said to be faster than a, and why, in one line."""
    if isinstance(comparison, Rejected):
        return False, f"the comparison does not count: {comparison.reason}"
    gain = f"{comparison.speedup:.3f}x [{comparison.low:.3f}, {comparison.high:.3f}] over the best kernel"
    if comparison.low > 1 + smallest_gain:
        return True, gain
    return False, f"{gain}: the lower end does not clear {1 + smallest_gain:.3f}"
