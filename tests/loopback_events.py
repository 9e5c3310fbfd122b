"""What the loopback is asked and may do wrong, and how each of the three APIs words an answer as a stream of events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Api = Literal["anthropic", "chat", "responses"]
FaultKind = Literal[
    "status",  # an error status with a JSON body
    "overloaded",  # 200, the stream begins, then an error event
    "error-200",  # 200 with a JSON error body instead of a stream
    "html",  # 200 with a web page, as of a captive portal
    "no-choices",  # 200, a stream in which choices (content) are missing
    "empty",  # an answer of no text with an ordinary stop reason
    "thought-only",  # reasoning used the whole limit: no text, stopped by length
    "truncated",  # `text`, stopped by length
    "window",  # `text`, stopped by the model's context window
    "refusal",  # the model declines
    "drop",  # the connection closes in the middle of the stream
    "cut",  # the stream ends in good order before the answer is complete
    "hang",  # nothing comes after the first event until the server is closed
    "silent",  # nothing comes at all until the server is closed
    "garbage",  # an event that is no JSON
]

_STOPS: Mapping[Api, tuple[str, str]] = {
    "anthropic": ("end_turn", "max_tokens"),
    "chat": ("stop", "length"),
    "responses": ("completed", "incomplete"),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came in.

    Attributes:
        number: from 0, over the life of the server.
        api: which of the three.
        system, user: the texts asked.
        body: the JSON body.
        headers: names in lower case.
    """

    number: int
    api: Api
    system: str
    user: str
    body: Mapping[str, Any]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure to act out.

    Attributes:
        kind: see `FaultKind`.
        status, error: of a `status` fault; `error` is the body's error member, also for `overloaded` and `error-200`.
        text: what is sent of the answer before or despite the failure.
        headers: added to the response.
        after: events of a stream that go out before it breaks.
    """

    kind: FaultKind
    status: int = 500
    error: Mapping[str, Any] | str = field(default_factory=lambda: {"type": "api_error", "message": "it broke"})
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    after: int = 1


@dataclass(frozen=True, slots=True)
class Tokens:
    """Counts the server reports; `prompt` includes the cached ones."""

    prompt: int
    cached: int
    written: int
    output: int


def counted(asked: Asked, text: str) -> Tokens | None:
    """Four characters to a token, a fifth of the prompt read from the cache and a tenth written to it."""
    prompt = 10 + len(asked.system + asked.user) // 4
    return Tokens(prompt, prompt // 5, prompt // 10, 1 + len(text) // 4)


class Speaker(Protocol):
    """What an answer is worded by, beside its text: see `Loopback`."""

    tokens: Callable[[Asked, str], Tokens | None]
    thinking: str


def sse(event: str | None, data: object) -> bytes:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def error_event(api: Api, fault: Fault) -> Mapping[str, Any]:
    if api != "responses" or isinstance(fault.error, str):
        return {"type": "error", "error": fault.error}
    return {"type": "error", "code": fault.error.get("type"), "message": fault.error.get("message"), "param": None}


def _outcome(api: Api, answer: str | Fault) -> tuple[str, str]:
    """Visible text and stop reason of an answer."""
    done, by_length = _STOPS[api]
    if isinstance(answer, str):
        return answer, done
    return answer.text, by_length if answer.kind in ("truncated", "window", "thought-only") else done


def _pieces(text: str) -> list[str]:
    """Pieces of an odd length, so that nothing relies on where a stream is divided, and not too many."""
    size = max(7, len(text) // 41)
    return [text[start : start + size] for start in range(0, len(text), size)]


def _anthropic_events(server: Speaker, asked: Asked, answer: str | Fault) -> Iterator[bytes]:
    text, stop = _outcome("anthropic", answer)
    kind = answer.kind if isinstance(answer, Fault) else None
    counts = server.tokens(asked, text)
    usage: dict[str, int] = {}
    if counts:
        usage = {
            "input_tokens": counts.prompt - counts.cached - counts.written,
            "cache_read_input_tokens": counts.cached,
            "cache_creation_input_tokens": counts.written,
            "output_tokens": 1,
        }
    message = {"id": f"msg_{asked.number}", "type": "message", "role": "assistant", "model": asked.body["model"]}
    yield sse(
        "message_start",
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "usage": usage or None}},
    )
    blocks: list[tuple[str, str]] = [("thinking", server.thinking)] if server.thinking else []
    if kind not in ("no-choices", "empty", "thought-only", "refusal"):
        blocks.append(("text", text))
    for index, (block, content) in enumerate(blocks):
        at = {"index": index}
        empty = {"type": block, block: ""}
        yield sse("content_block_start", {"type": "content_block_start", **at, "content_block": empty})
        for piece in _pieces(content):
            delta = {"type": f"{block}_delta", block: piece}
            yield sse("content_block_delta", {"type": "content_block_delta", **at, "delta": delta})
            yield sse("ping", {"type": "ping"})
        yield sse("content_block_stop", {"type": "content_block_stop", **at})
    reasons = {"refusal": "refusal", "window": "model_context_window_exceeded"}
    end = {"stop_reason": reasons.get(kind or "", stop), "stop_sequence": None}
    final = {"output_tokens": counts.output} if counts else None
    yield sse("message_delta", {"type": "message_delta", "delta": end, "usage": final})
    yield sse("message_stop", {"type": "message_stop"})


def _chat_events(server: Speaker, asked: Asked, answer: str | Fault) -> Iterator[bytes]:
    text, stop = _outcome("chat", answer)
    kind = answer.kind if isinstance(answer, Fault) else None
    head = {"id": f"chatcmpl-{asked.number}", "object": "chat.completion.chunk", "model": asked.body["model"]}

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        return sse(None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    if kind == "no-choices":
        yield sse(None, {**head, "choices": None})
        return
    yield chunk({"role": "assistant", "content": None})
    for piece in _pieces(server.thinking):
        yield chunk({"reasoning_content": piece})
    if kind == "refusal":
        yield chunk({"refusal": "I will not."})
    for piece in _pieces(text):
        yield chunk({"content": piece})
    yield chunk({}, "content_filter" if kind == "refusal" else stop)
    counts = server.tokens(asked, text)
    if counts and asked.body.get("stream_options"):
        usage = {
            "prompt_tokens": counts.prompt,
            "completion_tokens": counts.output,
            "total_tokens": counts.prompt + counts.output,
            "prompt_tokens_details": {
                "cached_tokens": counts.cached,
                "cache_write_tokens": counts.written,
            },
        }
        yield sse(None, {**head, "choices": [], "usage": usage})


def _responses_events(server: Speaker, asked: Asked, answer: str | Fault) -> Iterator[bytes]:
    text, status = _outcome("responses", answer)
    kind = answer.kind if isinstance(answer, Fault) else None
    response: dict[str, Any] = {"id": f"resp_{asked.number}", "object": "response", "model": asked.body["model"]}
    yield sse("response.created", {"type": "response.created", "response": {**response, "output": []}})
    for piece in _pieces(server.thinking):
        yield sse("response.reasoning_text.delta", {"type": "response.reasoning_text.delta", "delta": piece})
    for piece in _pieces(text):
        yield sse("response.output_text.delta", {"type": "response.output_text.delta", "delta": piece})
    content = {"type": "output_text", "text": text, "annotations": []}
    if kind == "refusal":
        content = {"type": "refusal", "refusal": "I will not."}
    output: list[dict[str, Any]] = [{"type": "reasoning", "id": "rs_0", "summary": []}]
    if kind not in ("no-choices", "empty", "thought-only"):
        output.append({"type": "message", "id": "msg_0", "role": "assistant", "content": [content]})
    response |= {"status": status, "output": output}
    if status == "incomplete":
        response["incomplete_details"] = {"reason": "max_output_tokens"}
    counts = server.tokens(asked, text)
    if counts:
        response["usage"] = {
            "input_tokens": counts.prompt,
            "input_tokens_details": {
                "cached_tokens": counts.cached,
                "cache_write_tokens": counts.written,
            },
            "output_tokens": counts.output,
            "output_tokens_details": {"reasoning_tokens": 10},
            "total_tokens": counts.prompt + counts.output,
        }
    yield sse(f"response.{status}", {"type": f"response.{status}", "response": response})


EVENTS: Mapping[Api, Callable[[Speaker, Asked, str | Fault], Iterator[bytes]]] = {
    "anthropic": _anthropic_events,
    "chat": _chat_events,
    "responses": _responses_events,
}
