"""A run told in stages, and how far its branches are."""

from __future__ import annotations

from agent import events as ev
from agent.events import Event
from agent.llm.types import Reply, Usage
from agent.watching.doing import doing_now
from agent.watching.story import Line, Story
from tests.unit.agent import event_log


def told(events: list[Event]) -> tuple[Story, list[Line]]:
    story = Story()
    return story, [line for event in event_log.stamped(events) for line in story.take(event)]


def whole_run() -> list[Event]:
    return [*event_log.opening(), *event_log.first_iteration(), *event_log.second_iteration(), *event_log.ending()]


def upto(kind: str, count: int = 1) -> list[Event]:
    """The made-up run up to and with the n-th event of a type."""
    events = whole_run()
    places = [i for i, e in enumerate(events) if getattr(e, "type", "") == kind]
    return events[: places[count - 1] + 1]


def marks_of(events: list[Event]) -> dict[str, str]:
    story, _ = told(events)
    return {s.name: " ".join(s.marks) for s in story.branches}


def test_every_stage_that_is_over_is_one_line() -> None:
    _, lines = told(whole_run())
    assert [line.verb for line in lines] == [
        *("Climbing", "Machine", "Checked", "Measured", "Defended", "Baseline", "Noise"),
        *(
            "Iteration",
            "Planned",
            "Wrote",
            "Timed",
            "Compared",
            "Checked",
            "Built",
            "Attributed",
            "Learned",
            "Accepted",
        ),
        *("Iteration", "Planned", "Wrote", "Timed", "Compared", "Attributed", "Kept out"),
        *("Compared", "Note", "Finished"),
    ]
    by_verb = {line.verb: line.text for line in lines}
    assert by_verb["Baseline"] == "800.0 ms, 32.0× the floor"
    assert by_verb["Accepted"] == "b2 200.0 ms, 3.90 exceeds 1.020"
    assert by_verb["Kept out"] == "0.995 does not exceed 1.020"
    assert by_verb["Finished"] == "(iterations) 3.98× [3.91, 4.05] over baseline, best from iteration 1, b2"
    texts = [line.text for line in lines]
    assert "2 of 4 branches right; b2 200.0 ms, 4.00× over baseline" in texts
    assert "1 of 2 ablations" in texts


def test_the_times_of_the_stages_add_up_to_the_run() -> None:
    story, lines = told(whole_run())
    whole = {"Accepted", "Kept out", "Finished"}  # these tell how long all of it took
    assert sum(line.seconds or 0.0 for line in lines if line.verb not in whole) <= story.state.elapsed_s
    accepted = next(line for line in lines if line.verb == "Accepted")
    head = next(line for line in lines if line.verb == "Iteration")
    assert accepted.seconds == accepted.at_s - head.at_s


def test_cost_so_far_stands_on_every_line_and_an_unknown_price_is_not_zero() -> None:
    _, lines = told(whole_run())
    assert next(line.usd for line in lines if line.verb == "Planned") == 0.1
    unpriced = upto("request_sent")
    reply = event_log.answered("iter1-plan-0", 1, "plan")
    unknown = reply.model_copy(update={"reply": Reply("{}", "m", Usage(1, 1, 0, 0), None, "end")})
    _, lines = told([*unpriced, unknown, *(e for e in event_log.first_iteration() if isinstance(e, ev.PlanDecided))])
    assert lines[-1].usd is None


def test_branches_go_through_asked_built_verified_and_timed() -> None:
    open_, done = "open open open open", "good good good good"
    assert marks_of(upto("plan_decided")) == dict.fromkeys(("b0", "b1", "b2", "b3"), open_)
    assert marks_of(upto("request_sent", 2))["b0"] == "busy open open open"
    assert marks_of(upto("branch_written", 1))["b0"] == open_.replace("open", "good", 1), "the others are asked for"
    assert marks_of(upto("branch_written", 4))["b0"] == "good busy open open"
    built = ev.BranchesBuilt(key="iter1/built", iteration=1, seconds={"b0": None, "b1": 1.0, "b2": 1.0, "b3": 1.0})
    assert marks_of([*upto("branch_written", 4), built])["b1"] == "good good busy open"
    ended = marks_of(upto("champion_decided"))
    assert ended == {"b0": "good bad open open", "b1": done, "b2": done, "b3": "good good bad open"}
    assert marks_of(upto("champion_decided", 2))["b1"] == "good good good unsure"


def test_a_repair_begins_a_branch_again() -> None:
    asked = event_log.asked("iter1-repair-b0-0", 1, "repair")
    story, _ = told([*upto("evaluated", 5), asked])
    (b0, *_) = story.branches
    assert (b0.doing, b0.marks[0]) == ("repair 1", "busy")
    written = ev.BranchWritten(key="iter1/b0/repair1", iteration=1, branch="b0", model="m", source="void solve();")
    assert marks_of([*upto("evaluated", 5), asked, written])["b0"] == "good busy open open"


def test_what_was_in_flight_when_the_session_died_is_not_shown_as_asked() -> None:
    resumed = ev.SessionStarted(key="1", device_id=event_log.DEVICE.id, environment=event_log.ENVIRONMENT)
    assert marks_of([*upto("request_sent", 3), resumed])["b0"] == "open open open open"


def test_what_is_done_now_follows_from_the_last_event() -> None:
    expected = {
        "run_started": "looking at this machine",
        "session_started": "measuring what this machine can do",
        "exploits_played": "measuring the baseline",
        "aa_measured": "profiling the best kernel",
        "recalled": "asking for a plan",
        "request_sent": "asking for a plan",
        "plan_decided": "asking for branches",
        "machine_code_checked": "building ablations",
        "ablation_built": "comparing the champion and its ablations",
        "run_ended": "writing the report",
    }
    assert {kind: doing_now(told(upto(kind))[0]) for kind in expected} == expected
    assert doing_now(told(upto("request_sent", 5))[0]) == "asking for b0, b1, b2, b3"
    assert doing_now(told(upto("branch_written", 4))[0]) == "building b0, b1, b2, b3"
    assert doing_now(told(upto("evaluated", 3))[0]) == "verifying and timing b2"
    assert doing_now(told(upto("iteration_ended", 2))[0], 2) == "comparing the best kernel with the baseline"


def test_text_from_a_compiler_or_a_model_stays_one_line() -> None:
    _, lines = told([*event_log.opening(), ev.Noted(key="1", text=event_log.HOSTILE)])
    assert lines[-1].text == "<script>alert(1)</script> | **bold**  [31mred next line"
