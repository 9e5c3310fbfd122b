"""`run --dry-run`: measure, render the first prompts, estimate tokens and dollars. Nothing is sent."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from agent.config import Config, load_config
from agent.errors import ConfigError
from agent.faults import as_exit_codes
from agent.journal import Journal
from agent.llm.prices import cost_usd, estimate_tokens, load_prices, price_for
from agent.llm.registry import BATCHES, LOCAL
from agent.llm.types import LLMSettings, Request, Step, Usage
from agent.progress import Progress
from agent.roles import Roles
from agent.run import Run, StopRun
from agent.run_checks import check_llm
from agent.run_folder import copy_inputs
from agent.session import open_run
from agent.stages.baseline import measure_baseline
from agent.stages.evidence import gather
from agent.stages.planning import plan_request
from agent.task import prepare_task

# What answers of this kind have taken: a plan is about 1,500 tokens, a kernel file about 2,500.
_PLAN_OUTPUT = 1500
_KERNEL_OUTPUT = 2500


def dry_run(config: Config, progress: Progress) -> tuple[Mapping[str, Any], str]:
    """The first prompt and what the run would cost.

    Raises:
        RoofclimbError: as `run` would, up to the first request.
    """
    check_llm(config, asks=False)
    task = prepare_task(config)
    if config.task.reference is None:
        raise ConfigError("task.reference: a run needs one; without a reference nothing can be accepted")
    with ExitStack() as stack:
        stack.callback(progress.close)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roofclimb-dry-run-")))
        copy_inputs(config, task, folder)
        journal = Journal(folder)
        stack.callback(journal.close)
        stack.enter_context(as_exit_codes())
        copied = load_config(folder / "config.yaml")
        run = stack.enter_context(open_run(folder, journal, progress, threading.Event(), copied))
        baseline = measure_baseline(run)
        try:
            evidence = gather(run, 1, baseline)
        except StopRun as stop:
            return {"baseline_ms": baseline.median_ms, "requests": 0, "usd": 0.0}, f"Nothing would be asked: {stop}."
        request = plan_request(run, 1, baseline, evidence, (), 0)
        estimate = _estimate(run, request)
    result = {"baseline_ms": baseline.median_ms, "system": request.system, "prompt": request.user, **estimate}
    return result, _text(request, estimate)


def _estimate(run: Run, request: Request) -> dict[str, Any]:
    """Tokens and dollars of the whole run, repairs and rewrites left out."""
    assert run.task.config.llm is not None
    roles, search = Roles(run.task.config.llm), run.search
    plan = estimate_tokens(request.system + request.user)
    shared = estimate_tokens(request.system + request.prefix)
    branches = [Step(1, "branch", f"b{i}") for i in range(search.branches)]
    asked = {Step(1, "plan"): Usage(plan, _PLAN_OUTPUT), **dict.fromkeys(branches, Usage(shared, _KERNEL_OUTPUT))}
    costs = [_usd(roles.of(step), usage, step.purpose == "branch") for step, usage in asked.items()]
    known = [usd for usd in costs if usd is not None]
    return {
        "requests": search.iterations * len(asked),
        "first_prompt_tokens": plan,
        "input_tokens": search.iterations * sum(usage.input or 0 for usage in asked.values()),
        "output_tokens": search.iterations * sum(usage.output or 0 for usage in asked.values()),
        "usd": search.iterations * sum(known) if len(known) == len(costs) else None,
    }


def _usd(settings: LLMSettings, usage: Usage, is_branch: bool) -> float | None:
    if settings.provider in LOCAL:
        return 0.0
    batch = is_branch and settings.mode == "batch" and settings.provider in BATCHES
    return cost_usd(usage, price_for(settings.provider, settings.model, load_prices(settings.prices), batch=batch))


def _text(request: Request, estimate: Mapping[str, Any]) -> str:
    usd = "price unknown" if estimate["usd"] is None else f"${estimate['usd']:.2f}"
    return (
        f"{request.system}\n---\n\n{request.user}\n---\n"
        f"About {estimate['requests']} requests, {estimate['input_tokens']} tokens in, "
        f"{estimate['output_tokens']} out: {usd}. Repairs and rewrites come on top; cached input costs less."
    )
