"""Presence and effect: machine code against the kernel the methods were applied to, and each method off alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent.artefacts import write_json, write_text
from agent.events import AblationBuilt, MachineCodeChecked
from agent.llm.types import LLMError, Request, Step
from agent.paths import iteration_folder
from agent.plan import Plan
from agent.run import Kernel, Run
from agent.stages.branches import read_kernel
from agent.stages.switches import ALL, switched_specs
from agent.stages.wording import ablation_prompt, system_prompt
from backends.types import Built, Rejected
from profiling.findings import Comparison, MethodPresence
from profiling.machine_code import check_methods, instruction_mix

# The switch audit: with all methods off the kernel may be this much slower than the one they were applied to.
AUDIT_TOLERANCE = 0.10
# How often a rewrite is asked for when the answer cannot be read.
_ASKED = 2


@dataclass(frozen=True, slots=True)
class Ablation:
    """The champion without one method (or without any).

    Attributes:
        built: how it was made, and whether its machine code differs from the champion's.
        comparison: it (a) against the champion (b); rejected when it is wrong, None when there was nothing to measure.
    """

    built: AblationBuilt
    comparison: Comparison | Rejected | None


@dataclass(frozen=True, slots=True)
class Variant:
    """The champion without one method (or without any), built or not."""

    event: AblationBuilt
    built: Built | Rejected

    @property
    def comparable(self) -> Built | None:
        """Its build, where there is something to compare: a switch that changes no machine code is not measured."""
        same = self.event.method != ALL and self.event.code_differs is False
        return None if same or isinstance(self.built, Rejected) else self.built


def check_machine_code(
    run: Run, iteration: int, plan: Plan, base: Kernel, champion: Kernel
) -> tuple[MethodPresence, ...]:
    """Each planned method's signature in the champion, relative to the kernel it was applied to."""
    key = run.key(iteration, "machine-code")

    def check() -> MachineCodeChecked:
        run.progress.activity("checking machine code")
        run.prepare_workers(0, len(plan.methods))
        before, after = run.code.device(base.built), run.code.device(champion.built)
        presence = check_methods(plan.method_ids, before, after)
        return MachineCodeChecked(key=key, iteration=iteration, presence=presence)

    checked = run.journal.once(MachineCodeChecked, key, check)
    before, after = run.code.device(base.built), run.code.device(champion.built)
    mixes = {name: None if x is None else instruction_mix(x) for name, x in (("before", before), ("after", after))}
    folder = iteration_folder(run.folder, iteration)
    resources = {"before": base.built.resources, "after": champion.built.resources}
    found = {"methods": list(checked.presence), "instruction_mix": mixes, "resources": resources}
    write_json(folder / "sass_check.json", found)
    return checked.presence


def build_ablations(run: Run, iteration: int, plan: Plan, champion: Kernel) -> dict[str, Variant]:
    """The champion without each method, and, where all have a switch, without any (for the switch audit)."""
    switched = _build_switched(run, iteration, plan, champion)
    variants = {m: _without(run, iteration, plan, champion, m, switched.get(m)) for m in plan.method_ids}
    if ALL in switched:
        key, built = run.key(iteration, ablation_name(ALL)), switched[ALL]
        event = _built_event(run, key, iteration, ALL, "switch", champion, None, built)
        variants[ALL] = Variant(event, built)
    return variants


def ablation_name(method: str) -> str:
    """What an ablation is called in keys and folders."""
    return "all_off" if method == ALL else f"no_{method}"


def _build_switched(run: Run, iteration: int, plan: Plan, champion: Kernel) -> dict[str, Built | Rejected]:
    specs = switched_specs(run, plan, champion.source)
    run.checkpoint()
    run.progress.activity(f"building {len(specs)} ablations")
    sources = []
    for name, spec in specs.items():
        path = ablation_folder(run, iteration, name) / run.kernel_file
        write_text(path, champion.source)
        sources.append((path, spec))
    builds = dict(zip(specs, run.build_candidates(sources), strict=True))
    run.compare_code([built for built in builds.values() if isinstance(built, Built)], champion.built)
    return builds


def ablation_folder(run: Run, iteration: int, method: str) -> Path:
    """Where an ablation's kernel and times lie."""
    return iteration_folder(run.folder, iteration) / "ablations" / ablation_name(method)


def _without(
    run: Run, iteration: int, plan: Plan, champion: Kernel, method: str, switched: Built | Rejected | None
) -> Variant:
    key = run.key(iteration, ablation_name(method))
    if switched is not None:
        return Variant(_built_event(run, key, iteration, method, "switch", champion, None, switched), switched)
    source = _rewrite(run, iteration, plan, champion, method)
    built = source if isinstance(source, Rejected) else _build(run, iteration, method, source)
    text = None if isinstance(source, Rejected) else source
    return Variant(_built_event(run, key, iteration, method, "rewrite", champion, text, built), built)


def _build(run: Run, iteration: int, method: str, source: str) -> Built | Rejected:
    path = ablation_folder(run, iteration, method) / run.kernel_file
    write_text(path, source)
    run.checkpoint()
    run.progress.activity(f"building the champion without {method}")
    return run.build_candidates([(path, run.task.spec)])[0]


def _rewrite(run: Run, iteration: int, plan: Plan, champion: Kernel, method: str) -> str | Rejected:
    """No switch for this method: the model rewrites the champion without it."""
    run.checkpoint()
    run.progress.activity(f"asking for the champion without {method}")
    unreadable = None
    for attempt in range(_ASKED):
        prompt = ablation_prompt(run, plan, method, champion.source, unreadable)
        request = Request(Step(iteration, "ablate", method, attempt), system_prompt(), "", prompt, run.output_limit)
        reply = run.asker.ask_all([request])[0]
        source = read_kernel(run, reply)
        if isinstance(source, str) or isinstance(reply, LLMError):
            break
        unreadable = source.reason
    return source


def _built_event(
    run: Run,
    key: str,
    iteration: int,
    method: str,
    form: str,
    champion: Kernel,
    source: str | None,
    built: Built | Rejected,
) -> AblationBuilt:
    def describe() -> AblationBuilt:
        rejected = built if isinstance(built, Rejected) else None
        differs = None
        if isinstance(built, Built):
            differs = run.code.differs(built, champion.built)
        return AblationBuilt.model_validate(
            {
                "key": key,
                "iteration": iteration,
                "method": method,
                "form": form,
                "source": source,
                "code_differs": differs,
                "rejected": rejected,
            }
        )

    return run.journal.once(AblationBuilt, key, describe)
