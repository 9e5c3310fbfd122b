"""Which model answers which step: the section's own, unless the role of the step has another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.config_llm import LLMSection, RoleSection
from agent.llm.types import LLMSettings, Provider, Step

_KEYS = ("api_key_env", "api_key_file", "api_key_command")
_OF_A_PROVIDER = ("model", "base_url", *_KEYS, "answers", "temperature", "effort")


class Roles:
    """The settings of every step.

    Args:
        section: the `llm` section, paths absolute.
    """

    def __init__(self, section: LLMSection) -> None:
        self._base = llm_settings(section)
        given = {"plan": section.roles.plan, "repair": section.roles.repair, "ablate": section.roles.ablate}
        self._single = {name: _over(self._base, role) for name, role in given.items() if role is not None}
        self._branches = tuple(_over(self._base, role) for role in section.roles.branch)

    def of(self, step: Step) -> LLMSettings:
        """Branches take theirs in turn; a repair is its branch's, unless there is a model for repairs."""
        if step.purpose in self._single:
            return self._single[step.purpose]
        if step.purpose in ("branch", "repair") and self._branches:
            return self._branches[_number(step.target) % len(self._branches)]
        return self._base

    def in_use(self) -> Mapping[str, LLMSettings]:
        """The settings that some step has, by where they stand in the config."""
        found = {f"llm.roles.{name}": settings for name, settings in self._single.items()}
        found |= {f"llm.roles.branch[{i}]": settings for i, settings in enumerate(self._branches)}
        steps = (Step(1, "plan"), Step(1, "branch", "b0"), Step(1, "repair", "b0"), Step(1, "ablate", "m"))
        return {"llm": self._base, **found} if any(self.of(s) is self._base for s in steps) else found


class Providers:
    """A provider for each step, made with the first question, so that a dry run needs neither key nor SDK.

    Args:
        roles: who answers what.
        make: makes the provider of some settings; it is asked once for each.
    """

    def __init__(self, roles: Roles, make: Callable[[LLMSettings], Provider]) -> None:
        self._roles = roles
        self._make = make
        self._made: dict[LLMSettings, Provider] = {}
        self._lock = threading.Lock()

    def __call__(self, step: Step) -> Provider:
        """The provider that answers a step. Raises what making it raises."""
        settings = self._roles.of(step)
        with self._lock:
            if settings not in self._made:
                self._made[settings] = self._make(settings)
            return self._made[settings]


def llm_settings(section: LLMSection) -> LLMSettings:
    """The section's own settings as providers take them."""
    return LLMSettings(
        provider=section.provider,
        model=section.model,
        base_url=section.base_url,
        api_key_env=section.api_key_env,
        api_key_file=_text(section.api_key_file),
        api_key_command=section.api_key_command,
        answers=_text(section.answers),
        record=_text(section.record),
        max_output_tokens=section.max_output_tokens,
        timeout_s=section.timeout_s,
        max_attempts=section.max_attempts,
        max_retry_s=section.max_retry_s,
        temperature=section.temperature,
        effort=section.effort,
        prices=_text(section.prices),
    )


def _over(base: LLMSettings, role: RoleSection) -> LLMSettings:
    if role.provider is not None:
        fresh = LLMSettings(role.provider)
        own: dict[str, Any] = {name: getattr(fresh, name) for name in _OF_A_PROVIDER}
        base = replace(base, provider=role.provider, **own)
    elif role.base_url is not None or any(getattr(role, name) is not None for name in _KEYS):
        none: dict[str, Any] = dict.fromkeys(_KEYS)
        base = replace(base, **none)  # a key is for one server, and one is enough
    given: dict[str, Any] = {name: value for name, value in role if value is not None and name != "provider"}
    given.update({name: str(value) for name, value in given.items() if isinstance(value, Path)})
    return replace(base, **given)


def _number(branch: str | None) -> int:
    """Of `b3`."""
    return int(branch[1:]) if branch and branch[1:].isdigit() else 0


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
