"""A run on a GPU for pages to show: its beginning, profiles, plans and kernels were recorded on an H200, its times are
those of docs/results.md (`configs/gemm.yaml`); costs, memory, the third iteration and what went wrong are made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent import events as ev
from agent.events import EVENT, AnyEvent, Event
from agent.llm.recording import read_recording
from agent.llm.types import Reply, Usage
from agent.plan import BranchVariant, Plan
from memory.types import Advice, Recall
from profiling.findings import (
    CaseCheck,
    Comparison,
    Conditions,
    Evaluation,
    Headroom,
    MethodPresence,
    Metric,
    Profile,
    Timing,
)
from profiling.sanitizers.findings import SanitizerReport
from tests.unit.agent import event_log

ROOT = Path(__file__).resolve().parents[3]
ANSWERS = ROOT / "configs" / "answers" / "gemm"
RECORDED = ROOT / "tests" / "data" / "gpu_run"
MODELS = ("fast-model", "careful-model")
TIMES = {1: (3.327, 2.952, 3.040, 2.959), 2: (2.337, 2.807, 2.245, 2.357)}
MIX_AFTER = {"instructions": 3120, "ffma": 0, "hmma": 768, "global_loads": 40, "shared_stores": 64, "registers": 168}


def whole_run() -> list[AnyEvent]:
    """Three iterations: 8.7 times, 1.3 times on top, and one that ends in wrong and suspect kernels."""
    recorded = [EVENT.validate_json(line) for line in (RECORDED / "events.jsonl").read_text().splitlines()]
    played = ev.ExploitsPlayed(
        key="exploits", rejected={"no_op": "C[0]", "first_call_only": "C[0]", "after_return": "C[9]"}
    )
    parts: Sequence[Event] = (*recorded, played, *_first(), *_second(), *_third(), *_end())
    return event_log.stamped([_with_model(e) for e in parts], every_s=2.4)


def sources() -> dict[str, str]:
    """The kernel as given, and the best."""
    return {"baseline": (ROOT / "configs/kernels/gemm_naive.cu").read_text(), "best": kernel(2, "b2")}


def kernel(iteration: int, branch: str) -> str:
    """A recorded kernel."""
    text = _reply(f"iter{iteration}-branch-{branch}-0")
    return text.partition("```cuda\n")[2].rpartition("```")[0]


def _with_model(event: Event) -> Event:
    if isinstance(event, ev.RunStarted):
        return event.model_copy(update={"provider": "anthropic", "model": MODELS[0]})
    return event


def _reply(step: str) -> str:
    recording = read_recording(ANSWERS, step)
    assert recording is not None
    return recording.reply.text if isinstance(recording.reply.text, str) else "\n".join(recording.reply.text)


def _champion_profile() -> Profile:
    """Of the first iteration's champion, as the recorded second plan was shown it."""
    recording = read_recording(ANSWERS, "iter2-plan-1")
    assert recording is not None
    rules: Any = recording.context["rules"]
    event = {"type": "profiled", "key": "x", "profile": rules["profile"], "mix": {}}
    found = EVENT.validate_python(event)
    assert isinstance(found, ev.Profiled)
    return _with_traffic(found.profile, 2.71e9)


def _with_traffic(profile: Profile, read: float) -> Profile:
    """With memory traffic, which the plan was not shown: made up."""
    meaning = "Bytes between memory and chip."
    counted = tuple(
        Metric(f"dram__bytes_{way}.sum", amount, "byte", "memory", "low", 0.1, meaning)
        for way, amount in (("read", read), ("write", 6.9e7))
    )
    return replace(profile, metrics=(*(m for m in profile.metrics if not m.name.startswith("dram__bytes")), *counted))


def _first() -> list[Event]:
    plan = Plan.model_validate_json((RECORDED / "plan.json").read_text())
    attributed = (
        ("compute.ilp_unroll_register_tile", 13.23, 13.23, 13.24, "5.475x [5.472, 5.481] with it"),
        ("memory.tiling_smem", 2.204, 2.200, 2.207, "1.746x [1.744, 1.747] with it"),
        ("memory.vectorized_access", 0.8781, 0.8755, 0.8821, "1.297x [1.296, 1.299] with it"),
    )
    presence = (
        MethodPresence(
            "compute.ilp_unroll_register_tile",
            "verified",
            "sums in innermost loops: 1 before, 64 after (carried must grow 1.5 times)",
            {"sums in innermost loops": 21},
            {"sums in innermost loops": 2048},
            ("FFMA R35, R12, R8, R35 ;", "FFMA R34, R12, R9, R34 ;", "FFMA R33, R12, R10, R33 ;"),
        ),
        MethodPresence(
            "memory.tiling_smem",
            "verified",
            "staged_loads: 0 of 58 before, 128 of 168 after (share must grow 1.25 times)",
            {"staged_loads": 0, "STS LDGSTS UTMALDG UBLKCP": 0},
            {"staged_loads": 128, "STS LDGSTS UTMALDG UBLKCP": 26},
            ("STS [R71+0x210], R4 ;", "LDS.128 R8, [R66+0x2000] ;"),
        ),
        MethodPresence(
            "memory.vectorized_access",
            "verified",
            "wide_moves: 0 of 59 moves before, 40 of 200 after (share must grow 1.1 times)",
            {"wide_moves": 0},
            {"wide_moves": 40},
            ("LDG.E.128.CONSTANT R4, [R2.64] ;",),
        ),
    )
    return [
        *_asked(1, "plan", MODELS[1], 0.214),
        ev.PlanDecided(key="iter1", iteration=1, plan=plan),
        *_branches(1, disturbed=3),
        _compared("iter1/champion", 1, "baseline", "iter1/b1", (25.62, 2.955), (8.67, 8.66, 8.68)),
        _clean(1, "b1"),
        ev.ChampionDecided(
            key="iter1/decision", iteration=1, branch="b1", accepted=True, reason="8.667x [8.656, 8.677] over the best"
        ),
        ev.MachineCodeChecked(key="iter1", iteration=1, presence=presence),
        _attributed(1, 22.66, attributed, "passed: with all methods off 0.989x the time of the kernel before"),
        ev.Remembered(key="iter1", iteration=1, records=(31, 32, 33, 34), lessons=("Register tiles first.",)),
        ev.IterationEnded(key="iter1", iteration=1, status="accepted", reason="8.667x [8.656, 8.677] over the best"),
        ev.Profiled(key="profile/b1", profile=_champion_profile(), mix={**MIX_AFTER, "ffma": 2048, "hmma": 0}),
    ]


def _second() -> list[Event]:
    plan = Plan.model_validate_json(_reply("iter2-plan-1"))
    attributed = (
        ("compute.tf32_emulation_3xtf32_bf16x6", 0.7048, 0.6990, 0.7074, "1.314x [1.311, 1.315] with it"),
        ("memory.async_copy", 0.03845, 0.0365, 0.03944, "1.017x [1.016, 1.017] with it: does not clear 1.020"),
    )
    presence = (
        MethodPresence(
            "compute.tf32_emulation_3xtf32_bf16x6",
            "verified",
            "narrow_float_mma: 0 before, 768 after (count must grow)",
            {"narrow_float_mma": 0, "float_add": 0},
            {"narrow_float_mma": 768, "float_add": 896},
            ("HMMA.1688.F32.TF32 R24, R4, R10, R24 ;",),
        ),
        MethodPresence("memory.async_copy", "verified", "copies grew", {"copies": 0}, {"copies": 320}),
    )
    advice = Advice(
        17, "9d2f00aa31c45b6e", ("compute.tensor_core",), {}, 0.94, "0.94x on gemm/cuda/sm_90/1e11: wrong by norm"
    )
    better = Advice(31, "51c45b6e9d2f00aa", ("memory.tiling_smem",), {}, 1.75, "1.75x on gemm/cuda/sm_90/1e11")
    return [
        _headroom(2, 2.952, (0.27, 0.19, 0.11), "compute"),
        ev.Recalled(key="iter2", iteration=2, recall=Recall((advice,), (better,), ("Register tiles first.",))),
        *_asked(2, "plan", MODELS[1], 0.231),
        ev.PlanDecided(key="iter2", iteration=2, plan=plan),
        *_branches(2),
        _compared("iter2/champion", 2, "iter1/b1", "iter2/b2", (2.956, 2.251), (1.313, 1.312, 1.315)),
        _clean(2, "b2"),
        ev.ChampionDecided(
            key="iter2/decision", iteration=2, branch="b2", accepted=True, reason="1.313x [1.312, 1.315] over the best"
        ),
        ev.MachineCodeChecked(key="iter2", iteration=2, presence=presence),
        _attributed(2, 0.7054, attributed, "passed: with all methods off 0.999x the time of the kernel before"),
        ev.Remembered(key="iter2", iteration=2, records=(35, 36), lessons=("3xTF32 holds the norm check here.",)),
        ev.IterationEnded(key="iter2", iteration=2, status="accepted", reason="1.313x [1.312, 1.315] over the best"),
        ev.Profiled(key="profile/b2", profile=_with_traffic(_champion_profile(), 1.18e9), mix=MIX_AFTER),
    ]


def _third() -> list[Event]:
    plan = Plan(
        analysis=Plan.model_validate_json(_reply("iter2-plan-1")).analysis,
        methods=(event_log.planned("latency.async_pipeline", "latency"),),
        branches=tuple(BranchVariant(name=f"b{i}", variant=f"{i + 2} stages") for i in range(4)),
    )
    return [
        _headroom(3, 2.251, (0.04, 0.01, 0.02), "compute"),
        *_asked(3, "plan", MODELS[1], 0.198),
        ev.PlanDecided(key="iter3", iteration=3, plan=plan),
        *(_written(3, f"b{i}", "void solve();") for i in range(4)),
        event_log.rejected("iter3/b0", 3, "b0", "build", "kernel.cu(41): error: identifier `stage` is undefined"),
        event_log.wrong("iter3/b1", 3, "b1", "C[127, 3] is 0.5183, not 12.06 (M=300, N=130, K=77)"),
        event_log.evaluated("iter3/b2", 3, "b2", 0.061, verdict="suspect", reason="0.061 ms is under the floor"),
        event_log.evaluated("iter3/b3", 3, "b3", 2.249),
        _compared("iter3/champion", 3, "iter2/b2", "iter3/b3", (2.251, 2.249), (1.001, 0.999, 1.003)),
        ev.ChampionDecided(
            key="iter3/decision", iteration=3, branch="b3", accepted=False, reason="the lower end does not clear 1.020"
        ),
        _attributed(3, 0.002, (("latency.async_pipeline", 0.004, -0.003, 0.011, "within noise"),), None),
        ev.IterationEnded(key="iter3", iteration=3, status="not-accepted", reason="the lower end does not clear 1.020"),
    ]


def _end() -> list[Event]:
    return [
        _compared("final", 0, "baseline", "iter2/b2", (25.62, 2.253), (11.37, 11.34, 11.40)),
        ev.RunEnded(key="end", stop_reason="iterations"),
    ]


def _branches(iteration: int, disturbed: int = 0) -> list[Event]:
    names = [f"b{i}" for i in range(4)]
    made: list[Event] = []
    for index, name in enumerate(names):
        made += _asked(iteration, "branch", MODELS[index % 2], 0.081, f"branch-{name}")
        made.append(_written(iteration, name, kernel(iteration, name)))
    made += [_timed(iteration, n, ms, disturbed) for n, ms in zip(names, TIMES[iteration], strict=True)]
    return made


def _written(iteration: int, branch: str, source: str) -> ev.BranchWritten:
    model = MODELS[int(branch[1:]) % 2]
    return ev.BranchWritten(
        key=f"iter{iteration}/{branch}", iteration=iteration, branch=branch, model=model, source=source
    )


def _timed(iteration: int, branch: str, ms: float, disturbed: int) -> ev.Evaluated:
    shapes = ({"M": 1, "N": 1, "K": 1}, {"M": 127, "N": 65, "K": 33}, {"M": 4096, "N": 4096, "K": 4096})
    checks = tuple(
        CaseCheck(s, d, True, None, 2.1e-5, 3.4e-7) for s in shapes for d in ("declared", "uniform", "spike")
    )
    conditions = tuple(Conditions(1965.0 - i, 51 + i % 3, 612.0 + i, False, False) for i in range(12))
    samples = tuple(ms * (1 + 0.0005 * (i % 5)) for i in range(12))
    timing = Timing(ms, ms / 900, samples, 0.0021, ms * 1.001, "cold", ms, conditions, disturbed)
    return ev.Evaluated(
        key=f"iter{iteration}/{branch}",
        iteration=iteration,
        branch=branch,
        build_s=1.9,
        outcome=Evaluation("pass", None, checks, timing),
    )


def _asked(iteration: int, purpose: str, model: str, usd: float, step: str | None = None) -> list[Event]:
    key = f"iter{iteration}-{step or purpose}-0"
    reply = Reply("{}", model, Usage(2100, 6400, 11800, 900), usd, "end")
    return [
        event_log.asked(key, iteration, purpose),
        ev.ReplyReceived(key=key, iteration=iteration, purpose=purpose, reply=reply),
    ]


def _compared(
    key: str, iteration: int, a: str, b: str, times: tuple[float, float], interval: tuple[float, float, float]
) -> ev.Compared:
    delta = times[0] - times[1]
    ratios = tuple((0.1,) * 24 for _ in range(3))
    outcome = Comparison(*interval, *times, delta, delta * 0.998, delta * 1.002, ratios)
    return ev.Compared(key=key, iteration=iteration, a=a, b=b, outcome=outcome)


def _clean(iteration: int, branch: str) -> ev.Sanitized:
    report = SanitizerReport(("memcheck", "racecheck", "initcheck", "synccheck"), (), ())
    kernel_name = f"iter{iteration}/{branch}"
    return ev.Sanitized(key=f"iter{iteration}/sanitized", iteration=iteration, kernel=kernel_name, report=report)


def _attributed(
    iteration: int, gain_ms: float, rows: Sequence[tuple[str, float, float, float, str]], audit: str | None
) -> ev.Attributed:
    made = tuple(
        ev.Attribution.model_validate(
            {
                "method": method,
                "axis": method.partition(".")[0],
                "method_class": "effective" if low / gain_ms > 0.03 and "clear" not in reason else "ineffective",
                "attribution_ms": ms,
                "low_ms": low,
                "high_ms": high,
                "presence": "verified",
                "form": "switch",
                "reason": reason,
            }
        )
        for method, ms, low, high, reason in rows
    )
    return ev.Attributed(key=f"iter{iteration}", iteration=iteration, gain_ms=gain_ms, rows=made, audit=audit)


def _headroom(iteration: int, ms: float, axes: tuple[float, float, float], bound: str) -> ev.RooflineRecorded:
    floor = 2.151
    why = f"{ms} ms is {ms / floor:.2f} times the arithmetic floor of {floor} ms; {bound} leads."
    headroom = Headroom(ms, floor, 1 - floor / ms, *axes, max(axes) < 0.05, "compute", why)
    budget = {"compute": 1, "memory": 1, "latency": 1}
    return ev.RooflineRecorded.model_validate(
        {"key": f"iter{iteration}/roofline", "iteration": iteration, "headroom": headroom, "axis_budget": budget}
    )


def write_run(folder: Path) -> None:
    """A run folder with what the reports read."""
    (folder / "events.jsonl").write_text("".join(event.model_dump_json() + "\n" for event in whole_run()))
    for name, text in sources().items():
        (folder / name).mkdir()
        (folder / name / "kernel.cu").write_text(text)
