"""The `llm` section: who answers, and who answers in which role."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator

from agent.config_values import Count, NotNegative, Positive, Section
from agent.llm.types import Mode

PATHS = ("api_key_file", "answers", "record", "prices")
"""Keys that name files or folders."""


def _several(value: object) -> object:
    """One model stands for a list of one."""
    return [value] if isinstance(value, dict) else value


class ModelSection(Section):
    """Where a model is and how it is asked: what the section and each role may say."""

    base_url: str | None = None
    api_key_env: str | None = None
    api_key_file: Path | None = None
    api_key_command: str | None = None
    answers: Path | None = None
    temperature: NotNegative | None = None
    effort: str | None = None
    region: str | None = None
    project: str | None = None
    api_version: str | None = None


class RoleSection(ModelSection):
    """What differs in one role. A role that names a provider takes none of the section's own provider over."""

    provider: str | None = None
    model: str | None = None
    timeout_s: Positive | None = None


class RolesSection(Section):
    """Models by what is asked. Branches take theirs in turn; a repair is its branch's, unless it has one of its own."""

    plan: RoleSection | None = None
    branch: Annotated[tuple[RoleSection, ...], BeforeValidator(_several)] = ()
    repair: RoleSection | None = None
    ablate: RoleSection | None = None


class LLMSection(ModelSection):
    """Which model answers. Swapping `provider` is the only change a live run needs."""

    provider: str
    model: str = ""
    record: Path | None = None
    max_output_tokens: Count = 16000
    timeout_s: Positive = 600.0
    max_attempts: Count = 5
    max_retry_s: Positive = 900.0
    prices: Path | None = None
    mode: Mode = "direct"
    batch_deadline_minutes: Positive = 60.0
    roles: RolesSection = RolesSection()
