"""How a command ends. Every expected end is one of these; anything else is a bug and surfaces.

RoofclimbError
├── ConfigError        2    the config or an input is wrong
├── UnfitEnvironment  3    this machine is not fit; the line says what to do
├── ModelUnusable      4    the language model cannot be used
├── HarnessBroken      5    the harness failed, never the candidate
├── WaitingForAnswer   75   provider `file` waits for an answer
└── Interrupted        130  stopped by a signal; resumable
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class RoofclimbError(Exception):
    """One line for stderr, the exit code it ends with, and what was found until then: data for --json, and text."""

    exit_code = 1

    def __init__(self, message: str, found: tuple[Mapping[str, Any], str] | None = None) -> None:
        super().__init__(message)
        self.found = found


class ConfigError(RoofclimbError):
    """The config or an input is wrong."""

    exit_code = 2


class UnfitEnvironment(RoofclimbError):
    """This machine lacks something; the message says what to do."""

    exit_code = 3


class ModelUnusable(RoofclimbError):
    """Authentication, refusal or exhausted retries."""

    exit_code = 4


class HarnessBroken(RoofclimbError):
    """The harness failed; no verdict was given."""

    exit_code = 5


class WaitingForAnswer(RoofclimbError):
    """The `file` provider has written its prompts and waits."""

    exit_code = 75


class Interrupted(RoofclimbError):
    """SIGINT or SIGTERM: the step was finished and saved."""

    exit_code = 130
