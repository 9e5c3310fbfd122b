"""What a run cannot do without, found missing before anything is measured."""

from __future__ import annotations

from agent.config import Config
from agent.errors import ConfigError, ModelUnusable
from agent.llm.prices import load_prices, price_for
from agent.llm.registry import PROVIDERS, check_key, check_settings
from agent.llm.types import LLMSettings
from agent.role_checks import check_roles
from agent.roles import Roles
from agent.task import Task, prepare_task
from agent.this_process import keep_secrets


def check_run(config: Config) -> Task:
    """The task of a config that a run can be made of. Raises ConfigError, ModelUnusable."""
    check_llm(config)
    task = prepare_task(config)
    if config.task.reference is None:
        raise ConfigError("task.reference: a run needs one; without a reference nothing can be accepted")
    return task


def check_llm(config: Config, *, asks: bool = True) -> None:
    """Refuse a model section that cannot work, before anything is measured. A run that asks nothing needs no key."""
    keep_secrets()  # keys are read from here on
    if config.llm is None:
        raise ConfigError(f"llm: is required for a run; name a provider ({', '.join(PROVIDERS)})")
    for where, settings in Roles(config.llm).in_use().items():
        _check_settings(where, settings, config, asks=asks)
    problem = check_roles(config, config.llm)
    if problem is not None:
        raise ConfigError(problem)


def _check_settings(where: str, settings: LLMSettings, config: Config, *, asks: bool) -> None:
    prefix = "" if where == "llm" else f"{where}: "
    problem = check_settings(settings)
    if problem is not None and problem != check_key(settings):
        raise ConfigError(f"{prefix}{problem}")
    if problem is not None and asks:
        raise ModelUnusable(f"{prefix}{problem}")
    if config.budget.usd is not None and settings.provider not in ("replay", "file"):
        table = load_prices(settings.prices)
        if price_for(settings.provider, settings.model, table) is None:
            raise ConfigError(
                f"budget.usd: no price is known for {settings.provider} {settings.model}; "
                "add it to the price table (llm.prices) or set budget.tokens instead"
            )
