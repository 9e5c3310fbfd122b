"""The providers `openai` (Responses API) and `openai-compatible` (Chat Completions), streamed through OpenAI's SDK.

Stop reasons: `stop` and a completed response are `end`; `length` and `max_output_tokens` are `truncated`; a content
filter or a refusal is an LLMError of that kind (its cost in the error's context); anything else is `other`.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import httpx2
import openai
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent, ResponseUsage
from pydantic import SecretStr

from agent.llm.prices import Price
from agent.llm.remote import Attempt, Failed, Failure, RemoteProvider, failure_of_body
from agent.llm.retry import RetryPolicy
from agent.llm.types import LLMSettings, Reply, Request, StopReason, Usage

_NO_KEY = "none"
_THINKING = re.compile(r"\s*<think>(?:.*?</think>\s*|.*\Z)", re.S)
_CUT_SHORT = "the stream ended before the answer was complete"


class _OpenAI(RemoteProvider):
    """What both APIs share: the client and the translation of its errors."""

    droppable: ClassVar[Mapping[str, re.Pattern[str]]] = {
        "temperature": re.compile(r"\btemperature\b", re.I),
        "effort": re.compile(r"reasoning|\beffort\b", re.I),
        "schema": re.compile(r"response_format|text\.format|json_schema|structured output|\bschemas?\b", re.I),
        "stream_options": re.compile(r"stream_options", re.I),
        "max_tokens": re.compile(r"\bmax_tokens\b", re.I),
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

    def _connect(self) -> openai.OpenAI:
        return openai.OpenAI(
            api_key=self._key.get_secret_value() if self._key else _NO_KEY,
            base_url=self._base_url,
            max_retries=0,
            timeout=self._timeout(),
        )

    def _timeout(self) -> openai.Timeout:
        return openai.Timeout(self._settings.timeout_s, connect=min(30.0, self._settings.timeout_s))

    def _optional(self, request: Request) -> frozenset[str]:
        given = {
            "temperature": self._settings.temperature is not None,
            "effort": self._settings.effort is not None,
            "schema": request.schema is not None,
            "stream_options": True,
            "max_tokens": True,
        }
        return frozenset(name for name, there in given.items() if there)

    def _exchange(self, request: Request, optional: frozenset[str], attempt: Attempt) -> Reply:
        try:
            return self._stream(request, optional, attempt)
        except (openai.OpenAIError, httpx2.HTTPError, ValueError) as error:
            failure = _failure(error)
        raise Failed(failure)

    def _failure_of(self, error: Exception) -> Failure:
        return _failure(error)

    @abstractmethod
    def _stream(self, request: Request, optional: frozenset[str], attempt: Attempt) -> Reply:
        """One streamed attempt, in the words of one of the two APIs."""


class OpenAICompatibleProvider(_OpenAI):
    """Chat Completions, for OpenAI's own and for the many servers that speak it (vLLM, Ollama, gateways)."""

    def _stream(self, request: Request, optional: frozenset[str], attempt: Attempt) -> Reply:
        check_deadline = self._deadline()
        with self._client.chat.completions.create(
            model=self._settings.model,
            messages=[
                {"role": "system", "content": request.system},
                {"role": "user", "content": request.user},
            ],
            stream=True,
            extra_body=self._extra_body(request, optional),
        ) as stream:
            self._check_stream(attempt, stream.response.headers, stream.response.read)
            collected = _Chat()
            for chunk in stream:
                self._check_event(chunk)
                attempt.characters += collected.add(chunk)
                attempt.usage = _chat_usage(collected.usage)
                check_deadline()
        return self._reply(collected, stream.response.headers.get("x-request-id"), request)

    def _extra_body(self, request: Request, optional: frozenset[str]) -> dict[str, object]:
        """The optional parameters; outside the SDK's signature, for it follows one server and this speaks to many."""
        # Newer models of OpenAI know the limit by its second name only; most other servers by its first.
        limit = "max_tokens" if "max_tokens" in optional else "max_completion_tokens"
        body: dict[str, object] = {limit: request.max_output_tokens}
        if "stream_options" in optional:
            body["stream_options"] = {"include_usage": True}
        if "temperature" in optional:
            body["temperature"] = self._settings.temperature
        if "effort" in optional:
            body["reasoning_effort"] = self._settings.effort
        if "schema" in optional and request.schema is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": _named_schema(request.schema)}
        return body

    def _reply(self, chat: _Chat, request_id: str | None, request: Request) -> Reply:
        request_id = request_id or chat.id
        usage = _chat_usage(chat.usage)
        if not chat.chunks:
            raise Failed(Failure("the stream ended without a word", lost=True, request_id=request_id))
        if chat.refusal or chat.finish == "content_filter":
            raise self._refusal("".join(chat.refusal) or "content filter", usage, request_id)
        if not chat.choices:
            raise Failed(Failure("the answer holds no choices", request_id=request_id))
        if chat.finish is None or chat.finish == "error":
            raise Failed(Failure(_CUT_SHORT, lost=True, request_id=request_id))
        self._check_prompt_read(usage, request)
        stops: Mapping[str, StopReason] = {"stop": "end", "length": "truncated"}
        # Servers without a reasoning parser leave the reasoning in the text.
        text = _THINKING.sub("", chat.text, count=1) if _THINKING.match(chat.text) else chat.text
        model = chat.model or self._settings.model
        return Reply(text, model, usage, usd=None, stop=stops.get(chat.finish, "other"), request_id=request_id)


class OpenAIProvider(_OpenAI):
    """The Responses API."""

    def _optional(self, request: Request) -> frozenset[str]:
        return super()._optional(request) - {"stream_options", "max_tokens"}

    def _stream(self, request: Request, optional: frozenset[str], attempt: Attempt) -> Reply:
        check_deadline = self._deadline()
        with self._client.responses.create(
            model=self._settings.model,
            instructions=request.system,
            input=request.user,
            max_output_tokens=request.max_output_tokens,
            store=False,
            stream=True,
            extra_body=self._extra_body(request, optional),
        ) as stream:
            self._check_stream(attempt, stream.response.headers, stream.response.read)
            collected = _Responses()
            for event in stream:
                self._check_event(event)
                attempt.characters += collected.add(event)
                check_deadline()
        return self._reply(collected, stream.response.headers.get("x-request-id"))

    def _extra_body(self, request: Request, optional: frozenset[str]) -> dict[str, object]:
        body: dict[str, object] = {}
        if "temperature" in optional:
            body["temperature"] = self._settings.temperature
        if "effort" in optional:
            body["reasoning"] = {"effort": self._settings.effort}
        if "schema" in optional and request.schema is not None:
            body["text"] = {"format": {"type": "json_schema", **_named_schema(request.schema)}}
        return body

    def _body(self, request: Request, optional: frozenset[str]) -> dict[str, object]:
        """The body of a request of a batch."""
        return {
            "model": self._settings.model,
            "instructions": request.system,
            "input": request.user,
            "max_output_tokens": request.max_output_tokens,
            "store": False,
            **self._extra_body(request, optional),
        }

    def _reply_of(self, response: Response, request_id: str | None) -> Reply:
        """The reply in a response that came whole."""
        collected = _Responses()
        collected.response = response
        return self._reply(collected, request_id)

    def _reply(self, collected: _Responses, request_id: str | None) -> Reply:
        response = collected.response
        if response is None:
            raise Failed(Failure(_CUT_SHORT, lost=True, request_id=request_id))
        request_id = request_id or response.id
        if response.status == "failed":
            error = response.error.to_dict() if response.error else "the response failed without a reason"
            raise Failed(failure_of_body(error))
        usage = _responses_usage(response.usage)
        text, refusal = _visible(response)
        incomplete = response.incomplete_details.reason if response.incomplete_details else None
        if refusal or incomplete == "content_filter":
            raise self._refusal(refusal or "content filter", usage, request_id)
        stop: StopReason = "end"
        if response.status == "incomplete":
            stop = "truncated" if incomplete == "max_output_tokens" else "other"
        return Reply(text or "".join(collected.deltas), response.model, usage, None, stop, request_id)


class _Chat:
    """What the chunks of a chat completion add up to. Reasoning (`reasoning_content` and its kin) is left out."""

    def __init__(self) -> None:
        self.chunks = 0
        self.choices = 0
        self.id: str | None = None
        self.model: str | None = None
        self.finish: str | None = None
        self.usage: CompletionUsage | None = None
        self.refusal: list[str] = []
        self._text: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._text)

    def add(self, chunk: ChatCompletionChunk) -> int:
        """Take a chunk; the characters of output it brings, visible or not."""
        characters = 0
        self.chunks += 1
        self.id = chunk.id or self.id
        self.model = chunk.model or self.model
        self.usage = chunk.usage or self.usage
        # The SDK does not validate: servers leave out choices, and the delta of the last one.
        for choice in chunk.choices or []:
            self.choices += 1
            self.finish = choice.finish_reason or self.finish
            if choice.delta is not None:
                self._text.append(choice.delta.content or "")
                reasoning = getattr(choice.delta, "reasoning_content", None) or getattr(choice.delta, "reasoning", None)
                characters += len(choice.delta.content or "") + len(str(reasoning or ""))
                if choice.delta.refusal:
                    self.refusal.append(choice.delta.refusal)
        return characters


class _Responses:
    """The final response of a stream, and the text as it came."""

    def __init__(self) -> None:
        self.response: Response | None = None
        self.deltas: list[str] = []

    def add(self, event: ResponseStreamEvent) -> int:
        """Take an event; the characters of output it brings, visible or not."""
        if event.type == "response.output_text.delta":
            self.deltas.append(event.delta)
        elif event.type in ("response.completed", "response.incomplete", "response.failed"):
            self.response = event.response
        elif event.type == "error":
            raise Failed(failure_of_body({"message": event.message, "code": event.code, "param": event.param}))
        delta = getattr(event, "delta", None)
        return len(delta) if isinstance(delta, str) else 0


def _visible(response: Response) -> tuple[str, str]:
    """Text and refusal of a response; reasoning, tool calls and commentary on the way are left out."""
    text: list[str] = []
    refusal: list[str] = []
    for item in response.output or []:
        if item.type != "message" or item.phase == "commentary":
            continue
        for content in item.content or []:
            if content.type == "output_text":
                text.append(content.text)
            elif content.type == "refusal":
                refusal.append(content.refusal)
    return "".join(text), "".join(refusal)


def _chat_usage(usage: CompletionUsage | None) -> Usage:
    if usage is None:
        return Usage()
    details = usage.prompt_tokens_details
    read = details.cached_tokens if details else None
    write = details.cache_write_tokens if details else None
    return _uncached(usage.prompt_tokens, usage.completion_tokens, read, write)


def _responses_usage(usage: ResponseUsage | None) -> Usage:
    if usage is None:
        return Usage()
    details = usage.input_tokens_details
    read, write = (details.cached_tokens, details.cache_write_tokens) if details else (None, None)
    return _uncached(usage.input_tokens, usage.output_tokens, read, write)


def _uncached(prompt: int | None, output: int | None, read: int | None, write: int | None) -> Usage:
    """OpenAI counts cached tokens as part of the prompt; `Usage.input` does not."""
    fresh = None if prompt is None else max(0, prompt - (read or 0) - (write or 0))
    return Usage(input=fresh, output=output, cache_read=read, cache_write=write)


def _named_schema(schema: Mapping[str, object]) -> dict[str, object]:
    return {"name": "answer", "schema": dict(schema), "strict": _is_strict(schema)}


def _is_strict(schema: object) -> bool:
    """Whether a schema is in the subset that OpenAI enforces: every object closed, all of its properties required."""
    if isinstance(schema, list):
        return all(_is_strict(item) for item in schema)
    if not isinstance(schema, Mapping):
        return True
    properties = schema.get("properties")
    if schema.get("type") == "object" or isinstance(properties, Mapping):
        names = set(properties) if isinstance(properties, Mapping) else set()
        if schema.get("additionalProperties") is not False or set(schema.get("required", [])) != names:
            return False
    return all(_is_strict(value) for value in schema.values())


def _failure(error: Exception) -> Failure:
    """What the SDK raised: a status, an error inside a stream, or no answer."""
    if isinstance(error, openai.APIStatusError):
        failure = failure_of_body(error.body or error.message, error.status_code)
        return Failure(
            failure.message,
            failure.status,
            failure.codes,
            failure.param,
            headers=error.response.headers,
            request_id=error.request_id,
        )
    if isinstance(error, (openai.APITimeoutError, httpx2.TimeoutException)):
        return Failure("no answer in time (llm.timeout_s)", lost=True)
    if isinstance(error, openai.APIConnectionError):
        return Failure(f"no connection: {error.__cause__ or error.message}", lost=True)
    if isinstance(error, openai.APIError):
        return failure_of_body(error.body or error.message)
    if isinstance(error, httpx2.HTTPError):
        return Failure(f"the connection broke off: {error or type(error).__name__}", lost=True)
    if isinstance(error, ValueError):
        return Failure(f"the stream is broken: {error}", lost=True)
    return Failure(str(error))
