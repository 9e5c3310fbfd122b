"""Which model answers which step: the section's own, unless the role of the step has another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from agent.config_llm import LLMSection, ModelSection, RoleSection
from agent.llm.types import LLMSettings, Step

P = TypeVar("P")

_KEYS = ("api_key_env", "api_key_file", "api_key_command")
_OF_A_PROVIDER = ("model", *ModelSection.model_fields)


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


class Providers(Generic[P]):
    """A provider (or its batch API) for each step, made with the first question: a dry run needs neither key nor SDK.

    Args:
        roles: who answers what.
        make: makes the provider of some settings; it is asked once for each.
    """

    def __init__(self, roles: Roles, make: Callable[[LLMSettings], P]) -> None:
        self._roles = roles
        self._make = make
        self._made: dict[LLMSettings, P] = {}
        self._lock = threading.Lock()

    def __call__(self, step: Step) -> P:
        """The provider that answers a step. Raises what making it raises."""
        settings = self._roles.of(step)
        with self._lock:
            if settings not in self._made:
                self._made[settings] = self._make(settings)
            return self._made[settings]


def llm_settings(section: LLMSection) -> LLMSettings:
    """The section's own settings as providers take them."""
    names = [key.name for key in fields(LLMSettings)]
    return LLMSettings(**{name: _plain(getattr(section, name)) for name in names})


def _over(base: LLMSettings, role: RoleSection) -> LLMSettings:
    if role.provider is not None:
        fresh = LLMSettings(role.provider)
        own: dict[str, Any] = {name: getattr(fresh, name) for name in _OF_A_PROVIDER}
        base = replace(base, provider=role.provider, **own)
    elif role.base_url is not None or any(getattr(role, name) is not None for name in _KEYS):
        none: dict[str, Any] = dict.fromkeys(_KEYS)
        base = replace(base, **none)  # a key is for one server, and one is enough
    given: dict[str, Any] = {name: value for name, value in role if value is not None and name != "provider"}
    return replace(base, **{name: _plain(value) for name, value in given.items()})


def _number(branch: str | None) -> int:
    """Of `b3`."""
    return int(branch[1:]) if branch and branch[1:].isdigit() else 0


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
