"""Triton's autotuners: how one is told from another, and how what it chose is frozen."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from triton.runtime.autotuner import Autotuner, Config


def identity(tuner: Autotuner) -> str:
    """A name for an autotuner that is the same in every process: its kernel's, and a digest of its configurations."""
    digest = hashlib.sha256(repr([str(config) for config in tuner.configs]).encode())
    return f"{tuner.base_fn.__name__}-{digest.hexdigest()[:12]}"


class Asked(dict[object, Config]):
    """An autotuner's cache that knows the key it was asked for, and tells of one that it lacks.

    Attributes:
        asked: the key last looked up, as text.
    """

    def __init__(self, known: Mapping[object, Config], missing: Callable[[], None]) -> None:
        super().__init__(known)
        self._missing = missing
        self.asked = ""

    def __contains__(self, key: object) -> bool:
        self.asked = str(key)
        if super().__contains__(key):
            return True
        self._missing()
        return False
