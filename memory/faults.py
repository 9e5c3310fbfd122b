"""Failures that say something of the machine and nothing of a strategy."""

from __future__ import annotations

import re

# A fault of this kind, remembered, would block a strategy for a full disk or a missing permission.
_ENVIRONMENT = re.compile(
    r"no space left|disk quota|read-only file system|permission denied|not permitted|ERR_NVGPUCTRPERM|"
    r"cannot allocate memory|out of memory|resource temporarily unavailable|too many open files|"
    r"virtual memory exhausted|killed (?:signal|program)|input/output error|stale file handle|"
    r"version mismatch|no cuda-capable device|device(?:s)? (?:is|are) busy|unknown error|\bxid\b|"
    r"command not found|cannot execute|cannot open shared object|connection (?:refused|reset)",
    re.IGNORECASE,
)


def is_environment(reason: str) -> bool:
    """Whether a reason names the machine: memory, disk, permissions, a driver, a missing tool. Doubt counts as yes."""
    return _ENVIRONMENT.search(reason) is not None
