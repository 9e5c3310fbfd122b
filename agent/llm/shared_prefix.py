"""K requests that share a prefix: one goes ahead, so that the others read its cache instead of each writing their own.

A server can read a prefix from its cache once the first answer to it has begun, and not before: requests sent in the
same instant all pay for writing it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from agent.llm.prices import estimate_tokens
from agent.llm.types import Request

_SMALLEST_TOKENS = 1024
"""No server caches less: https://platform.claude.com/docs/en/build-with-claude/prompt-caching"""
_LIVES_S = 270.0
"""A little less than the five minutes that a cache lives."""
_LONGEST_S = 60.0
"""The others do not wait longer than this for the first answer to begin."""


class SharedPrefix:
    """Who goes ahead. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._ahead: dict[tuple[str, str], tuple[float, threading.Event]] = {}

    def enter(self, request: Request) -> Callable[[], None]:
        """Go ahead, or wait until the request that did has begun to be answered (or has failed).

        Returns:
            to be called once the answer has begun, and at the end in any case.
        """
        key = (request.system, request.prefix)
        if not request.prefix or estimate_tokens(request.system + request.prefix) < _SMALLEST_TOKENS:
            return _nothing
        with self._lock:
            now = self._clock()
            self._ahead = {known: ahead for known, ahead in self._ahead.items() if now - ahead[0] < _LIVES_S}
            if key not in self._ahead:
                begun = threading.Event()
                self._ahead[key] = (now, begun)
                return begun.set
            _, begun = self._ahead[key]
        begun.wait(_LONGEST_S)
        return _nothing


def _nothing() -> None:
    """Nobody waits for this one."""
