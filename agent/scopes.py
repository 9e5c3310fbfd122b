"""The scope of a task: where what is learned on it belongs."""

from __future__ import annotations

from agent.config import TaskSection
from memory.scope import derive_family, shape_class
from memory.types import Scope


def scope_of(section: TaskSection, backend: str, arch: str) -> Scope:
    """The task's scope on an architecture; `task.family` and `task.shape_class` go before what is derived."""
    shape = section.shape_class or shape_class(section.dims)
    return Scope(derive_family(section.name, section.family), backend, arch, shape)
