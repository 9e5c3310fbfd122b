"""The `anthropic` provider: the Messages API through its SDK, streamed, with the shared prefix cached.

Stop reasons: `end_turn` and `stop_sequence` are `end`; `max_tokens` and `model_context_window_exceeded` are
`truncated`; `refusal` is an LLMError of that kind (its cost in the error's context); anything else is `other`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import ClassVar

import anthropic
import httpx2
from anthropic.types import Message, RawMessageStreamEvent, TextBlockParam
from pydantic import SecretStr

from agent.llm.prices import Price
from agent.llm.remote import Attempt, Failed, Failure, RemoteProvider, failure_of_body
from agent.llm.retry import RetryPolicy
from agent.llm.types import LLMSettings, Reply, Request, StopReason, Usage

_STOPS: Mapping[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "max_tokens": "truncated",
    "model_context_window_exceeded": "truncated",
    "refusal": "refusal",
}


class AnthropicProvider(RemoteProvider):
    """Claude models. Thread-safe, as the SDK's client is."""

    droppable: ClassVar[Mapping[str, re.Pattern[str]]] = {
        "temperature": re.compile(r"\btemperature\b", re.I),
        "effort": re.compile(r"\beffort\b", re.I),
        "schema": re.compile(r"output_config|output_format|json_schema|structured output|\bschemas?\b", re.I),
    }

    def __init__(
        self,
        settings: LLMSettings,
        key: SecretStr | None,
        base_url: str | None,
        price: Price | None,
        policy: RetryPolicy,
    ) -> None:
        super().__init__(settings, key, base_url, price, policy)
        self._client = self._connect()

    def _connect(self) -> anthropic.Anthropic | anthropic.AnthropicBedrock | anthropic.AnthropicVertex:
        return anthropic.Anthropic(
            api_key=self._key.get_secret_value() if self._key else None,
            base_url=self._base_url,
            max_retries=0,
            timeout=self._timeout(),
        )

    def _timeout(self) -> anthropic.Timeout:
        return anthropic.Timeout(self._settings.timeout_s, connect=min(30.0, self._settings.timeout_s))

    def _optional(self, request: Request) -> frozenset[str]:
        given = {
            "temperature": self._settings.temperature is not None,
            "effort": self._settings.effort is not None,
            "schema": request.schema is not None,
        }
        return frozenset(name for name, there in given.items() if there)

    def _exchange(self, request: Request, optional: frozenset[str], attempt: Attempt) -> Reply:
        check_deadline = self._deadline()
        try:
            with self._client.messages.create(
                model=self._settings.model,
                max_tokens=request.max_output_tokens,
                system=_cached(request.system),
                messages=[{"role": "user", "content": _user_blocks(request)}],
                stream=True,
                extra_body=self._extra_body(request, optional),
            ) as stream:
                self._check_stream(attempt, stream.response.headers, stream.response.read)
                collected = _Collected()
                for event in stream:
                    self._check_event(event)
                    attempt.characters += collected.add(event)
                    attempt.usage = Usage(**collected.usage)
                    check_deadline()
            return self._reply(collected, stream.response.headers.get("request-id"))
        except (anthropic.AnthropicError, httpx2.HTTPError, ValueError) as error:
            failure = _failure(error)
        raise Failed(failure)

    def _extra_body(self, request: Request, optional: frozenset[str]) -> dict[str, object]:
        """What goes around the SDK's signature, which no longer knows `temperature` (newer models refuse it)."""
        body: dict[str, object] = {}
        config: dict[str, object] = {}
        if "temperature" in optional:
            body["temperature"] = self._settings.temperature
        if "effort" in optional:
            config["effort"] = self._settings.effort
        if "schema" in optional and request.schema is not None:
            config["format"] = {"type": "json_schema", "schema": anthropic.transform_schema(dict(request.schema))}
        if config:
            body["output_config"] = config
        return body

    def _reply(self, collected: _Collected, request_id: str | None) -> Reply:
        if not collected.complete:
            raise Failed(Failure("the stream ended before the answer was complete", lost=True, request_id=request_id))
        usage = Usage(**collected.usage)
        request_id = request_id or collected.message_id
        stop = _STOPS.get(collected.stop_reason or "", "other")
        if stop == "refusal":
            raise self._refusal("stop reason refusal", usage, request_id)
        model = collected.model or self._settings.model
        return Reply(collected.text, model, usage, usd=None, stop=stop, request_id=request_id)

    def _body(self, request: Request, optional: frozenset[str]) -> dict[str, object]:
        """The body of a request of a batch."""
        return {
            "model": self._settings.model,
            "max_tokens": request.max_output_tokens,
            "system": _cached(request.system),
            "messages": [{"role": "user", "content": _user_blocks(request)}],
            **self._extra_body(request, optional),
        }

    def _reply_of(self, message: Message) -> Reply:
        """The reply in a message that came whole."""
        collected = _Collected()
        collected.take(message)
        return self._reply(collected, None)

    def _failure_of(self, error: Exception) -> Failure:
        return _failure(error)


class _Collected:
    """The visible text, usage and stop reason of a stream. Thinking and tool blocks are read and left out."""

    def __init__(self) -> None:
        self.message_id: str | None = None
        self.model: str | None = None
        self.stop_reason: str | None = None
        self.complete = False
        self.usage: dict[str, int] = {}
        self._blocks: dict[int, list[str]] = {}

    @property
    def text(self) -> str:
        return "".join(piece for _, pieces in sorted(self._blocks.items()) for piece in pieces)

    def take(self, message: Message) -> None:
        """A message that came whole."""
        self.message_id, self.model, self.stop_reason = message.id, message.model, message.stop_reason
        self.complete = self.stop_reason is not None
        self._count(message.usage)
        for index, block in enumerate(message.content or []):
            if block.type == "text":
                self._blocks[index] = [block.text]

    def add(self, event: RawMessageStreamEvent) -> int:
        """Take an event; the characters of output it brings, visible or not."""
        if event.type == "message_start":
            self.message_id, self.model = event.message.id, event.message.model
            self._count(event.message.usage)
        elif event.type == "content_block_start":
            if event.content_block.type == "text":
                self._blocks.setdefault(event.index, []).append(event.content_block.text)
        elif event.type == "content_block_delta":
            if event.delta.type == "text_delta":
                self._blocks.setdefault(event.index, []).append(event.delta.text)
            return sum(len(getattr(event.delta, name, "")) for name in ("text", "thinking", "partial_json"))
        elif event.type == "message_delta":
            self.stop_reason = event.delta.stop_reason or self.stop_reason
            self.complete = self.complete or self.stop_reason is not None
            self._count(event.usage)
        elif event.type == "message_stop":
            self.complete = True
        return 0

    def _count(self, usage: anthropic.types.Usage | anthropic.types.MessageDeltaUsage | None) -> None:
        """Counts are cumulative: a later one replaces the earlier. A proxy may leave usage out altogether."""
        if usage is None:
            return
        counts = {
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "cache_read": usage.cache_read_input_tokens,
            "cache_write": usage.cache_creation_input_tokens,
        }
        self.usage.update({kind: count for kind, count in counts.items() if count is not None})


def _cached(text: str) -> Iterable[TextBlockParam]:
    """A text block that ends a cacheable prefix; the API refuses blank blocks, so a blank text is no block."""
    return [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}] if text.strip() else []


def _user_blocks(request: Request) -> list[TextBlockParam]:
    """The user text, the shared prefix first and cached; the blocks together are `request.user`."""
    if not request.prefix.strip():
        return [{"type": "text", "text": request.user}]
    return [*_cached(f"{request.prefix}\n\n"), {"type": "text", "text": request.prompt}]


def _failure(error: Exception) -> Failure:
    """What the SDK raised, or what broke through it: it maps no errors of a stream that has begun."""
    if isinstance(error, anthropic.APIStatusError):
        body = error.body
        told = body.get("error", body) if isinstance(body, Mapping) else (body or error.message)
        # An error inside a stream carries the status of the stream, which began with 200.
        failure = failure_of_body(told, error.status_code if error.status_code >= 400 else None)
        return Failure(
            failure.message,
            failure.status,
            failure.codes,
            failure.param,
            headers=error.response.headers,
            request_id=error.request_id,
        )
    if isinstance(error, (anthropic.APITimeoutError, httpx2.TimeoutException)):
        return Failure("no answer in time (llm.timeout_s)", lost=True)
    if isinstance(error, anthropic.APIConnectionError):
        return Failure(f"no connection: {error.__cause__ or error.message}", lost=True)
    if isinstance(error, httpx2.HTTPError):
        return Failure(f"the connection broke off: {error or type(error).__name__}", lost=True)
    if isinstance(error, ValueError):
        return Failure(f"the stream is broken: {error}", lost=True)
    return Failure(str(error))
