"""A small, complete, made-up run: every number is invented, no machine ever measured it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from agent import events as ev
from agent.events import EVENT, AnyEvent, Event
from agent.llm.types import Reply, Usage
from agent.plan import Analysis, BranchVariant, Plan, PlannedMethod, Trigger
from backends.types import Rejected
from memory.types import Advice, Recall
from profiling.device import DeviceFacts
from profiling.environment import Environment, Shortfall
from profiling.findings import (
    CaseCheck,
    Ceilings,
    Comparison,
    Evaluation,
    Headroom,
    MethodPresence,
    Metric,
    Profile,
    TaskCheck,
    Timing,
    Work,
)
from profiling.types import Tolerance

HOSTILE = "<script>alert(1)</script> | **bold** \x1b[31mred\nnext line"
START = datetime(2026, 11, 30, 1, 0, 0, tzinfo=timezone.utc)
DEVICE = DeviceFacts(
    id="0123456789abcdef",
    name="Imaginary CPU",
    arch="x86_64",
    features=("avx2", "fma"),
    physical_cores=4,
    usable_cores=4,
    l1d_bytes=32768,
    l2_bytes=1048576,
    l3_bytes=None,
    memory_bytes=8 << 30,
    virtualised=None,
)
ENVIRONMENT = Environment(
    device=DEVICE,
    versions={"g++": "g++ (made up) 12.2.0", "perf": None},
    counters="counted",
    counters_reason="perf is not installed",
    can_read_counters=False,
    layers={"network namespace": True, "seccomp": False},
    shortfalls=(Shortfall("no hardware counters", "install perf"),),
)


def stamped(events: Sequence[Event], every_s: float = 12.0) -> list[AnyEvent]:
    """The events as a journal would have logged them."""
    return [
        EVENT.validate_json(
            event.model_copy(
                update={
                    "seq": seq,
                    "at": (START + timedelta(seconds=seq * every_s)).isoformat(timespec="milliseconds"),
                    "elapsed_s": seq * every_s,
                }
            ).model_dump_json()
        )
        for seq, event in enumerate(events)
    ]


def whole_run(provider: str = "replay") -> list[AnyEvent]:
    """Two iterations: the first finds 4x, the second is kept out; then the final comparison."""
    return stamped([*opening(provider), *first_iteration(), *second_iteration(), *ending()])


def opening(provider: str = "replay") -> list[Event]:
    """From the start to the measured baseline."""
    return [
        ev.RunStarted(
            key="run",
            run_id="run_20261130_010000",
            version="0.0.0",
            task="made_up_gemm",
            backend="cpp",
            provider=provider,
            model="some-model",
            suffix=".cpp",
            noise=0.02,
        ),
        ev.SessionStarted(key="0", device_id=DEVICE.id, environment=ENVIRONMENT),
        ev.TaskChecked(
            key="task",
            check=TaskCheck(
                rejected=("zeros", "constant", "input copy", "half"),
                dropped_checks=(({"M": 127, "N": 65}, "baseline is wrong at C[3]"),),
                reference_ms=1600.0,
                flops=None,
                bytes=None,
                tolerance=Tolerance(1e-4, 1e-3),
            ),
            work=Work(flops=2e9, bytes=1.2e7),
            notes=("sizes follow the older convention",),
        ),
        ev.CeilingsMeasured(
            key=DEVICE.id,
            ceilings=Ceilings(
                copy_bytes=1.5e10,
                read_bytes=1.8e10,
                cache_bytes=None,
                flops={"float32": 8e10},
                theoretical_flops={"float32": 1.6e11},
                theoretical_bytes=4e10,
                provenance={"method": "copy and FMA loops", "date": "2026-11-29"},
            ),
        ),
        ev.FloorFound(key="floor", floor_ms=25.0, suspect_ms=12.5),
        ev.ExploitsPlayed(
            key="exploits", rejected={"no_op": "y[0] is 1, expected 2"}, left_out={"after_return": "does not build"}
        ),
        evaluated("baseline", 0, "baseline", 800.0),
        ev.AaMeasured(key="0", spread=0.013, median_ms=1000.0),
    ]


def first_iteration() -> list[Event]:
    """Four branches: a champion, a slower one, one that is not built, one wrong and repaired in vain."""
    plan = Plan(
        analysis=Analysis(metrics="", reasoning="", risks=""),
        methods=(planned("memory.cache_blocking", "memory"), planned("compute.fma", "compute")),
        branches=tuple(BranchVariant(name=f"b{i}", variant=f"{16 << i} by {16 << i} tiles") for i in range(4)),
    )
    return [
        profiled("build0", 0.91, {"fma": 0, "loads": 12}),
        roofline(1, 800.0, (0.30, 0.97, 0.12), "memory"),
        ev.Recalled(
            key="1",
            iteration=1,
            recall=Recall(
                blocked=(Advice(7, "0" * 16, ("memory.prefetch",), {}, 0.97, "made 3% slower on this machine"),)
            ),
        ),
        asked("iter1-plan-0", 1, "plan"),
        answered("iter1-plan-0", 1, "plan", "prompt differs from the recorded one"),
        ev.PlanDecided(key="1", iteration=1, plan=plan, notes=("memory.packing was skipped without a reason",)),
        *(asked(f"iter1-branch-b{i}-0", 1, "branch") for i in range(4)),
        *(answered(f"iter1-branch-b{i}-0", 1, "branch") for i in range(4)),
        *(
            ev.BranchWritten(key=f"iter1/b{i}", iteration=1, branch=f"b{i}", model="some-model", source="void solve();")
            for i in range(4)
        ),
        rejected("iter1/b0", 1, "b0", "build", HOSTILE),
        evaluated("iter1/b1", 1, "b1", 250.0),
        evaluated("iter1/b2", 1, "b2", 200.0),
        wrong("iter1/b3", 1, "b3", "C[5] is 1.0, not 2.0"),
        compared("iter1/champion", 1, "baseline", "iter1/b2", (800.0, 200.0), (4.0, 3.9, 4.1)),
        ev.ChampionDecided(key="1", iteration=1, branch="b2", accepted=True, reason="3.90 exceeds 1.020"),
        ev.MachineCodeChecked(
            key="1",
            iteration=1,
            presence=(
                MethodPresence(
                    "compute.fma",
                    "verified",
                    "vfmadd grew from 0 to 96",
                    {"vfmadd": 0},
                    {"vfmadd": 96},
                    ("vfmadd231ps ymm0, ymm1, ymm2",),
                ),
                MethodPresence("memory.cache_blocking", "none", "code differs with it off"),
            ),
        ),
        ev.AblationBuilt(
            key="iter1/compute.fma",
            iteration=1,
            method="compute.fma",
            form="switch",
            source="void solve();",
            code_differs=True,
        ),
        ev.AblationBuilt(
            key="iter1/memory.cache_blocking",
            iteration=1,
            method="memory.cache_blocking",
            form="rewrite",
            source=None,
            code_differs=None,
            rejected=Rejected("build", "does not compile"),
        ),
        ev.Attributed(
            key="1",
            iteration=1,
            gain_ms=600.0,
            rows=(
                ev.Attribution(
                    method="compute.fma",
                    axis="compute",
                    method_class="effective",
                    attribution_ms=150.0,
                    low_ms=140.0,
                    high_ms=161.0,
                    presence="verified",
                    form="switch",
                    reason="beyond noise",
                ),
                ev.Attribution(
                    method="memory.cache_blocking",
                    axis="memory",
                    method_class="unverified",
                    attribution_ms=None,
                    low_ms=None,
                    high_ms=None,
                    presence="none",
                    form="rewrite",
                    reason="the kernel without it does not compile",
                ),
            ),
            audit="all off runs at 801.0 ms, the base at 800.0 ms",
        ),
        ev.Remembered(key="1", iteration=1, records=(11, 12), lessons=("FMA pays once tiles fit the first cache.",)),
        ev.IterationEnded(key="1", iteration=1, status="accepted", reason="3.90 exceeds 1.020"),
    ]


def second_iteration() -> list[Event]:
    """One branch, right but no faster than noise allows; and a suspect."""
    plan = Plan(
        analysis=Analysis(metrics="", reasoning="", risks=""),
        methods=(planned("latency.unroll", "latency"),),
        branches=(BranchVariant(name="b0", variant="by 4"), BranchVariant(name="b1", variant="by 8")),
    )
    return [
        profiled("build1", 0.35, {"fma": 96, "loads": 40}),
        roofline(2, 200.0, (0.88, 0.41, 0.22), "compute"),
        ev.PlanDecided(key="2", iteration=2, plan=plan),
        *(
            ev.BranchWritten(key=f"iter2/b{i}", iteration=2, branch=f"b{i}", model="some-model", source="void solve();")
            for i in range(2)
        ),
        evaluated("iter2/b0", 2, "b0", 198.0),
        evaluated("iter2/b1", 2, "b1", 9.0, verdict="suspect", reason="9.000 ms is under the floor at 12.50 ms"),
        compared("iter2/champion", 2, "iter1/b2", "iter2/b0", (200.0, 198.0), (1.01, 0.995, 1.02)),
        ev.ChampionDecided(key="2", iteration=2, branch="b0", accepted=False, reason="0.995 does not exceed 1.020"),
        ev.Attributed(
            key="2",
            iteration=2,
            gain_ms=2.0,
            rows=(
                ev.Attribution(
                    method="latency.unroll",
                    axis="latency",
                    method_class="ineffective",
                    attribution_ms=1.5,
                    low_ms=-2.0,
                    high_ms=4.0,
                    presence="none",
                    form="switch",
                    reason="within noise",
                ),
            ),
            audit=None,
        ),
        ev.IterationEnded(key="2", iteration=2, status="not-accepted", reason="0.995 does not exceed 1.020"),
    ]


def ending(speedup: tuple[float, float, float] = (3.98, 3.91, 4.05)) -> list[Event]:
    """The final comparison and the end."""
    return [
        compared("final", 0, "baseline", "iter1/b2", (796.0, 200.0), speedup),
        ev.Noted(key="0", text="clock frequency varied by 3%"),
        ev.RunEnded(key="end", stop_reason="iterations"),
    ]


def evaluated(
    key: str, iteration: int, branch: str, ms: float, *, verdict: str = "pass", reason: str | None = None
) -> ev.Evaluated:
    """A timed kernel."""
    outcome = Evaluation(
        verdict="suspect" if verdict == "suspect" else "pass",
        reason=reason,
        checks=(CaseCheck({"M": 64}, "normal", True, None, 1e-6, 1e-7),),
        timing=Timing(ms, ms / 100, (ms,) * 10, 0.001, ms * 1.01, "cold"),
    )
    return ev.Evaluated(key=key, iteration=iteration, branch=branch, build_s=1.5, outcome=outcome)


def wrong(key: str, iteration: int, branch: str, reason: str) -> ev.Evaluated:
    """A kernel with a wrong answer."""
    check = CaseCheck({"M": 64}, "normal", False, reason, 1.0, 0.5)
    return ev.Evaluated(
        key=key, iteration=iteration, branch=branch, build_s=1.5, outcome=Evaluation("fail", reason, (check,), None)
    )


def rejected(key: str, iteration: int, branch: str, stage: str, reason: str) -> ev.Evaluated:
    """A kernel that fell at the build or at loading."""
    outcome = Rejected("build" if stage == "build" else "load", reason)
    return ev.Evaluated(key=key, iteration=iteration, branch=branch, build_s=None, outcome=outcome)


def compared(
    key: str, iteration: int, a: str, b: str, times: tuple[float, float], interval: tuple[float, float, float]
) -> ev.Compared:
    """An interleaved A/B."""
    delta = times[0] - times[1]
    comparison = Comparison(*interval, *times, delta, delta - 1, delta + 1, ((0.1,),))
    return ev.Compared(key=key, iteration=iteration, a=a, b=b, outcome=comparison)


def planned(method: str, axis: str) -> PlannedMethod:
    """One method of a plan."""
    return PlannedMethod.model_validate(
        {
            "id": method,
            "axis": axis,
            "why": "a made-up reason",
            "triggers": (Trigger(metric="miss_rate", value=0.91),),
            "trigger_strength": 0.9,
        }
    )


def profiled(key: str, miss_rate: float, mix: dict[str, int | float | str]) -> ev.Profiled:
    """A profile of one metric."""
    metric = Metric("miss_rate", miss_rate, "ratio", "memory", "low", miss_rate, "how often the cache misses")
    note = "counted from the task's work; no counters"
    return ev.Profiled(key=key, profile=Profile("counted", "degraded", (metric,), note), mix=mix)


def roofline(iteration: int, ms: float, axes: tuple[float, float, float], bound: str) -> ev.RooflineRecorded:
    """Headroom as an iteration began."""
    headroom = Headroom(ms, 25.0, 1 - 25.0 / ms, *axes, False, "memory" if bound == "memory" else "compute", "made up")
    budget = {"compute": 1, "memory": 2}
    return ev.RooflineRecorded.model_validate(
        {"key": str(iteration), "iteration": iteration, "headroom": headroom, "axis_budget": budget}
    )


def asked(key: str, iteration: int, purpose: str) -> ev.RequestSent:
    """A request on its way."""
    return ev.RequestSent(
        key=key, iteration=iteration, purpose=purpose, prompt_sha256="0" * 64, worst_usd=0.5, worst_tokens=16000
    )


def answered(key: str, iteration: int, purpose: str, note: str | None = None) -> ev.ReplyReceived:
    """A reply that cost ten cents."""
    reply = Reply("{}", "some-model", Usage(1000, 2000, 500, 0), 0.10, "end", note=note)
    return ev.ReplyReceived(key=key, iteration=iteration, purpose=purpose, reply=reply)
