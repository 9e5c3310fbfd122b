"""What a run is doing now, from its last event: for who looks on, and is not told as the process's own view is."""

from __future__ import annotations

from agent import events as ev
from agent.watching.branch_steps import BranchSteps
from agent.watching.story import Story

_AFTER: tuple[tuple[type[ev.Event], str], ...] = (
    (ev.RunStarted, "looking at this machine"),
    (ev.ShapesDrawn, "looking at this machine"),
    (ev.SessionStarted, "measuring what this machine can do"),
    (ev.CeilingsMeasured, "testing the task"),
    (ev.TaskChecked, "testing the task"),
    (ev.FloorFound, "trying the harness on known exploits"),
    (ev.ExploitsPlayed, "measuring the baseline"),
    (ev.RooflineRecorded, "recalling what earlier runs learned"),
    (ev.Recalled, "asking for a plan"),
    (ev.MachineCodeChecked, "building ablations"),
    (ev.AblationBuilt, "comparing the champion and its ablations"),
    (ev.Compared, "deciding"),
    (ev.Sanitized, "deciding"),
    (ev.ChampionDecided, "profiling"),
    (ev.Attributed, "remembering"),
    (ev.Remembered, "remembering"),
    (ev.RunEnded, "writing the report"),
)


def doing_now(story: Story, iterations: int | None = None) -> str:
    """One phrase; "" when the run is over.

    Args:
        story: what was read of the run.
        iterations: how many it may take, None when not known.
    """
    event = story.last
    if event is None:
        return "starting"
    if isinstance(event, ev.Paused):
        return ""
    said = _of_branches(story.branches) if story.state.iteration else ""
    if said:
        return said
    if isinstance(event, ev.RequestSent):
        return {"plan": "asking for a plan", "ablate": "asking for an ablation"}.get(event.purpose, "asking")
    if isinstance(event, ev.ReplyReceived):
        return "reading the answer"
    if isinstance(event, ev.PlanDecided):
        return "asking for branches" if event.plan else "going on"
    if isinstance(event, ev.Evaluated):
        return "checking machine code" if event.iteration else "measuring the noise"
    if isinstance(event, ev.IterationEnded) and iterations is not None and event.iteration >= iterations:
        return "comparing the best kernel with the baseline"
    return next((text for kind, text in _AFTER if isinstance(event, kind)), "profiling the best kernel")


def _of_branches(steps: tuple[BranchSteps, ...]) -> str:
    by_word: dict[str, list[str]] = {}
    for step in steps:
        if "busy" in step.marks:
            by_word.setdefault(step.doing.partition(" ")[0], []).append(step.name)
    for word, verb in (("asking", "asking for"), ("repair", "repairing"), ("building", "building")):
        if word in by_word:
            return f"{verb} {', '.join(by_word[word])}"
    return f"verifying and timing {by_word['timing'][0]}" if "timing" in by_word else ""
