"""What is wrong with the models of a run taken together, before anything is measured."""

from __future__ import annotations

from agent.config import Config
from agent.config_llm import LLMSection
from agent.llm.prices import load_prices, price_for
from agent.llm.registry import BATCHES
from agent.llm.types import LLMSettings, Step
from agent.roles import Roles


def check_roles(config: Config, section: LLMSection) -> str | None:
    """One line for the first thing wrong, None when there is nothing."""
    models, branches = len(section.roles.branch), config.search.branches
    if models > branches:
        return (
            f"llm.roles.branch: {models} models for search.branches = {branches}: the last would write nothing; "
            "name fewer or ask for more branches"
        )
    if section.mode != "batch":
        return None
    roles = Roles(section)
    writers = dict.fromkeys(roles.of(Step(1, "branch", f"b{i}")) for i in range(branches))
    batched = [settings for settings in writers if settings.provider in BATCHES]
    if not batched:
        others = ", ".join(dict.fromkeys(settings.provider for settings in writers))
        return f"llm.mode: {others} has no batch API here; those of {' and '.join(BATCHES)} can be used"
    unknown = [s for s in batched if config.budget.usd is not None and not _batch_price_is_known(s)]
    if unknown:
        first = unknown[0]
        return (
            f"budget.usd: no batch price is known for {first.provider} {first.model}; "
            "add `batch` to the price table (llm.prices) or set budget.tokens instead"
        )
    return None


def _batch_price_is_known(settings: LLMSettings) -> bool:
    return price_for(settings.provider, settings.model, load_prices(settings.prices), batch=True) is not None
