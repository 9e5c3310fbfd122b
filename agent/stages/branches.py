"""K branch kernels: asked for at once, duplicates dropped, built in parallel, verified and timed, repaired."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent.artefacts import write_json, write_text
from agent.elsewhere import Elsewhere, comparable_ms
from agent.events import BranchWritten, Evaluated
from agent.executors.spread import spread
from agent.llm.parse import Unreadable, extract_code
from agent.llm.types import LLMError, Reply, Request, Step, roomier
from agent.plan import Plan
from agent.run import Kernel, Run
from agent.stages.built import log_builds
from agent.stages.switches import switched_specs
from agent.stages.wording import branch_prefix, branch_prompt, repair_prompt, system_prompt
from backends.types import Built, Rejected
from profiling.findings import Evaluation

_ASKED_AGAIN = 2


def write_branches(run: Run, iteration: int, best: Kernel, plan: Plan) -> list[BranchWritten]:
    """Every branch's kernel, or why there is none; normalised duplicates are asked for once more, then dropped."""
    names = [f"b{i}" for i in range(run.search.branches)]
    missing = [n for n in names if run.journal.find(BranchWritten, f"iter{iteration}/{n}") is None]
    run.progress.activity(f"asking for {len(missing)} branches") if missing else None
    prefix = branch_prefix(run, best, plan)
    replies = _ask(run, prefix, [(Step(iteration, "branch", n), branch_prompt(run, plan, n)) for n in missing])
    seen = {run.task.backend.source_hash(best.source): "the best kernel"}
    written = []
    for name in names:
        event = run.journal.find(BranchWritten, f"iter{iteration}/{name}")
        if event is None:
            reply = replies[missing.index(name)]
            event = run.journal.append(_settle(run, iteration, name, plan, prefix, reply, seen))
        if event.source is not None:
            seen.setdefault(run.task.backend.source_hash(event.source), f"branch {name}")
        _save_source(run, event)
        written.append(event)
    return written


def evaluate_branches(run: Run, iteration: int, plan: Plan, written: Sequence[BranchWritten]) -> list[Kernel]:
    """Build all in parallel, then verify and time each; the kernels that passed, fastest first.

    Beside that the ablations of each are built, of those that built, and at last of the first alone: the champion.
    """
    sources = [w for w in written if w.source is not None]
    run.checkpoint()
    run.progress.activity(f"building {len(sources)} branches")
    unmeasured = [w for w in sources if run.journal.find(Evaluated, _key(run, iteration, w)) is None]
    if unmeasured:
        run.prepare_workers(len(unmeasured), len(plan.methods))
    _build_ablations_ahead(run, plan, sources)
    builds = run.build_candidates([(_source_path(run, w), run.task.spec) for w in sources])
    _build_ablations_ahead(run, plan, [w for w, built in zip(sources, builds, strict=True) if isinstance(built, Built)])
    run.disassemble_ahead([run.best.built, *(built for built in builds if isinstance(built, Built))])
    log_builds(run, iteration, sources, builds)
    kernels: list[tuple[Kernel, BranchWritten]] = []
    for branch, built, event in zip(sources, builds, _evaluate(run, iteration, sources, builds), strict=True):
        outcome = event.outcome
        if isinstance(outcome, Rejected) or outcome.verdict != "pass" or not isinstance(built, Built):
            continue
        median_ms = comparable_ms(outcome, event.elsewhere)
        if median_ms is not None:
            assert branch.source is not None
            label, epoch = f"iter{iteration}/{branch.branch}", run.epoch_of(iteration)
            kernel = Kernel(label, branch.source, built, median_ms, epoch, at_home=event.elsewhere is None)
            kernels.append((kernel, branch))
    kernels.sort(key=lambda found: found[0].median_ms)
    _build_ablations_ahead(run, plan, [branch for _, branch in kernels[:1]])
    return [kernel for kernel, _ in kernels]


def repair_branches(
    run: Run, iteration: int, best: Kernel, plan: Plan, written: Sequence[BranchWritten]
) -> list[Kernel]:
    """All branches failed: repair them, at most `search.repairs` times, until one passes.

    A repair that cannot be used leaves the kernel before it to be repaired again, with the new reason.
    """
    sources = {w.branch: w for w in written if w.source is not None}
    reasons = {name: _failure(run, iteration, w) for name, w in sources.items()}
    for attempt in range(1, run.search.repairs + 1 if sources else 0):
        run.checkpoint()
        run.progress.activity(f"all branches failed: repair {attempt}")
        repaired = _repair(run, iteration, attempt, best, plan, [(w, reasons[n]) for n, w in sources.items()])
        kernels = evaluate_branches(run, iteration, plan, repaired)
        if kernels:
            return kernels
        sources |= {w.branch: w for w in repaired if w.source is not None}
        reasons |= {w.branch: _failure(run, iteration, w) for w in repaired}
    return []


def read_kernel(run: Run, reply: Reply | LLMError) -> str | Rejected:
    """The kernel in a reply, byte for byte. What was cut off is never compiled."""
    if isinstance(reply, LLMError):
        return Rejected("answer", str(reply))
    if reply.stop == "truncated":
        return Rejected("answer", "the answer was cut off at the output limit")
    try:
        return extract_code(reply.text, run.task.backend.language)
    except Unreadable as error:
        return Rejected("answer", str(error))


def _ask(
    run: Run, prefix: str, prompts: Sequence[tuple[Step, str]], after: Reply | None = None
) -> list[Reply | LLMError]:
    limit, system = run.output_limit, system_prompt()
    requests = [Request(step, system, prefix, prompt, limit) for step, prompt in prompts]
    if after is not None and after.stop == "truncated":
        requests = [roomier(request) for request in requests]
    return run.asker.ask_all(requests)


def _settle(
    run: Run, iteration: int, name: str, plan: Plan, prefix: str, reply: Reply | LLMError, seen: dict[str, str]
) -> BranchWritten:
    """The branch's kernel; an answer that cannot be used, or repeats another, is asked for once more each."""
    key = f"iter{iteration}/{name}"
    for attempt in range(1, _ASKED_AGAIN + 1):
        model = reply.model if isinstance(reply, Reply) else ""
        source = read_kernel(run, reply)
        if isinstance(source, Rejected):
            problem, duplicate, unreadable = source, None, source.reason
        else:
            twin = seen.get(run.task.backend.source_hash(source))
            if twin is None:
                return BranchWritten(key=key, iteration=iteration, branch=name, model=model, source=source)
            problem, duplicate, unreadable = Rejected("duplicate", f"the same code as {twin}"), twin, None
        if isinstance(reply, LLMError) or attempt == _ASKED_AGAIN:
            break
        prompt = branch_prompt(run, plan, name, duplicate, unreadable)
        reply = _ask(run, prefix, [(Step(iteration, "branch", name, attempt), prompt)], after=reply)[0]
    return BranchWritten(key=key, iteration=iteration, branch=name, model=model, source=None, rejected=problem)


def _repair(
    run: Run, iteration: int, attempt: int, best: Kernel, plan: Plan, failed: Sequence[tuple[BranchWritten, Rejected]]
) -> list[BranchWritten]:
    prefix = branch_prefix(run, best, plan)
    prompts = [
        (Step(iteration, "repair", w.branch, attempt - 1), repair_prompt(run, plan, w.branch, w.source or "", why))
        for w, why in failed
    ]
    repaired = []
    for (branch, _), reply in zip(failed, _ask(run, prefix, prompts), strict=True):
        key = f"iter{iteration}/{branch.branch}/repair{attempt}"
        event = run.journal.find(BranchWritten, key)
        if event is None:
            source = read_kernel(run, reply)
            rejected = source if isinstance(source, Rejected) else None
            text = None if isinstance(source, Rejected) else source
            model = reply.model if isinstance(reply, Reply) else ""
            event = run.journal.append(
                BranchWritten(
                    key=key, iteration=iteration, branch=branch.branch, model=model, source=text, rejected=rejected
                )
            )
        _save_source(run, event)
        repaired.append(event)
    return repaired


def _evaluate(
    run: Run, iteration: int, branches: Sequence[BranchWritten], builds: Sequence[Built | Rejected]
) -> list[Evaluated]:
    """Each branch's outcome, logged once as it comes."""
    keys = [_key(run, iteration, branch) for branch in branches]

    def log(i: int, outcome: Evaluation | Rejected, elsewhere: Elsewhere | None) -> None:
        built, name = builds[i], branches[i].branch
        seconds = built.seconds if isinstance(built, Built) else None
        run.journal.append(
            Evaluated(
                key=keys[i], iteration=iteration, branch=name, build_s=seconds, outcome=outcome, elsewhere=elsewhere
            )
        )

    new = [i for i, key in enumerate(keys) if run.journal.find(Evaluated, key) is None]
    if new:
        assert run.harness  # a build that is rejected elsewhere than where the run measures says nothing
    kernels = {}
    for i in new:
        built = builds[i]
        if isinstance(built, Rejected):
            log(i, built, None)
        else:
            kernels[i] = built
    left = list(kernels)

    def go_on() -> None:
        run.checkpoint()
        names = ", ".join(branches[i].branch for i in left)
        run.progress.activity(f"verifying and timing {names if run.executor.places > 1 else branches[left[0]].branch}")

    for places, found in spread(run.executor, list(kernels.values()), run.best.built, run.best.median_ms, go_on):
        run.log_troubles()
        for i, evaluation in zip((list(kernels)[place] for place in places), found.evaluations, strict=True):
            left.remove(i)
            log(i, evaluation, found.elsewhere)
    return [_saved(run, *one) for one in zip(branches, builds, keys, strict=True)]


def _build_ablations_ahead(run: Run, plan: Plan, branches: Sequence[BranchWritten]) -> None:
    """Begin with the ablations of these branches, and end those of others."""
    if run.search.ablate:
        specs = [(_source_path(run, w), switched_specs(run, plan, w.source or "").values()) for w in branches]
        run.build_ahead([(path, spec) for path, found in specs for spec in found])


def _saved(run: Run, branch: BranchWritten, built: Built | Rejected, key: str) -> Evaluated:
    """A branch's outcome, written down for people too."""
    event = run.journal.find(Evaluated, key)
    assert event is not None
    folder = run.branch_folder(branch)
    write_json(folder / "bench.json", event.outcome)
    log = built.log if isinstance(built, Built) else f"{built.reason}\n\n{built.evidence}"
    write_text(folder / "build.log", log + "\n")
    return event


def _key(run: Run, iteration: int, branch: BranchWritten) -> str:
    return run.key(iteration, branch.key.removeprefix(f"iter{iteration}/"))


def _failure(run: Run, iteration: int, branch: BranchWritten) -> Rejected:
    evaluated = run.journal.find(Evaluated, _key(run, iteration, branch))
    if evaluated is None:
        return branch.rejected or Rejected("answer", "no kernel")
    outcome = evaluated.outcome
    if isinstance(outcome, Rejected):
        return outcome
    return Rejected("verify" if outcome.verdict == "fail" else "time", outcome.reason or outcome.verdict)


def _source_path(run: Run, branch: BranchWritten) -> Path:
    return run.branch_folder(branch) / run.kernel_file


def _save_source(run: Run, branch: BranchWritten) -> None:
    if branch.source is not None:
        write_text(_source_path(run, branch), branch.source)
