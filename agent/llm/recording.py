"""Recorded exchanges: what was asked, what came back and what the prompt was rendered from, one JSON file per step."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Protocol, runtime_checkable

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    JsonValue,
    NonNegativeInt,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
)

from agent.atomic import write_atomic
from agent.llm.types import Provider, Reply, Request, Step, StopReason, Usage

_CONTEXT: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


def _join_lines(value: object) -> object:
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    return value


def _split_lines(text: str) -> list[str]:
    return text.split("\n")


Text = Annotated[str, BeforeValidator(_join_lines), PlainSerializer(_split_lines, when_used="json")]
"""A text kept in JSON as the list of its lines, so that a diff of two recordings can be read; exact both ways."""


class RecordedUsage(BaseModel):
    """Tokens by kind, None where the provider did not say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: NonNegativeInt | None = None
    output: NonNegativeInt | None = None
    cache_read: NonNegativeInt | None = None
    cache_write: NonNegativeInt | None = None


class RecordedReply(BaseModel):
    """What came back."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: Text
    model: str
    usage: RecordedUsage = RecordedUsage()
    stop: StopReason


class Recording(BaseModel):
    """One exchange.

    Attributes:
        step: the step's name.
        prompt_sha256: hash of the system and the user text, see `prompt_sha256`.
        system, user: what was asked.
        reply: what came back.
        context: the values the prompt was rendered from (profile, budget, memory), as the loop gave them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: str
    prompt_sha256: str
    system: Text
    user: Text
    reply: RecordedReply
    context: dict[str, JsonValue] = {}


def prompt_sha256(request: Request) -> str:
    """SHA-256 in hex over the system text, a NUL and the user text."""
    return hashlib.sha256(f"{request.system}\0{request.user}".encode()).hexdigest()


def recording_path(folder: Path, step_name: str) -> Path:
    """Where a step's recording lies."""
    return folder / f"{step_name}.json"


def read_recording(folder: Path, step_name: str) -> Recording | None:
    """A step's recording, None when there is none.

    Raises:
        ValueError: one line, when the file is not a recording of that step.
    """
    path = recording_path(folder, step_name)
    try:
        recording = Recording.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ValueError(f"{path} is not a recording: {where}: {first['msg']}") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if recording.step != step_name:
        raise ValueError(f"{path} is a recording of {recording.step}, not of {step_name}")
    return recording


def write_recording(folder: Path, recording: Recording) -> Path:
    """Write a recording; the file is whole or not there.

    Raises:
        OSError: the folder cannot be written.
    """
    path = recording_path(folder, recording.step)
    text = json.dumps(recording.model_dump(mode="json"), indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(path, text + "\n")
    return path


@runtime_checkable
class Plays(Protocol):
    """A provider that plays recordings."""

    def recorded(self, step: Step) -> Recording | None:
        """The recording of a step, None when there is none."""
        ...


class RecordingProvider:
    """Any provider, with every reply written down before it is handed on. Errors are not recorded."""

    def __init__(self, inner: Provider, folder: Path) -> None:
        self.name = inner.name
        self._inner = inner
        self._folder = folder
        self._contexts: dict[str, dict[str, JsonValue]] = {}
        self._lock = threading.Lock()

    def attach(self, step: Step, context: Mapping[str, object]) -> None:
        """Give what the prompt of a step was rendered from, before `complete` is called for it.

        Raises:
            pydantic.ValidationError: a value that JSON cannot hold.
        """
        checked = _CONTEXT.validate_python(dict(context))
        with self._lock:
            self._contexts[step.name] = checked

    def complete(self, request: Request) -> Reply:
        """Ask the inner provider and record the exchange; the reply's note says when that failed. Raises LLMError."""
        return self.record(request, self._inner.complete(request))

    def record(self, request: Request, reply: Reply) -> Reply:
        """Record a reply that came another way (in a batch); its note says when that failed."""
        played = self.recorded(request.step)
        with self._lock:
            context = self._contexts.pop(request.step.name, {})
        if played is not None:
            context = played.context  # the answer was given to that prompt, not to today's
        usage = RecordedUsage(
            input=reply.usage.input,
            output=reply.usage.output,
            cache_read=reply.usage.cache_read,
            cache_write=reply.usage.cache_write,
        )
        recording = Recording(
            step=request.step.name,
            prompt_sha256=prompt_sha256(request),
            system=request.system,
            user=request.user,
            reply=RecordedReply(text=reply.text, model=reply.model, usage=usage, stop=reply.stop),
            context=context,
        )
        try:
            write_recording(self._folder, recording)
        except OSError as error:
            # The answer is paid for: it must not be lost with its recording.
            return replace(reply, note=f"not recorded: {self._folder} cannot be written ({error.strerror})")
        return reply

    def recorded(self, step: Step) -> Recording | None:
        """The recording that the inner provider plays, None where it plays none. Raises LLMError."""
        return self._inner.recorded(step) if isinstance(self._inner, Plays) else None

    def worst_case_usd(self, request: Request) -> float | None:
        """As the inner provider says."""
        return self._inner.worst_case_usd(request)


def usage_of(recorded: RecordedUsage) -> Usage:
    """The loop's own type of the recorded tokens."""
    return Usage(recorded.input, recorded.output, recorded.cache_read, recorded.cache_write)
