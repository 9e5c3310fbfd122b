"""A language model's server on the loopback: real HTTP and SSE, scripted answers, every common way to fail.

It speaks the Anthropic Messages API (`/v1/messages`), OpenAI's Chat Completions (`/v1/chat/completions`) and OpenAI's
Responses (`/v1/responses`), streamed, and answers 404 elsewhere, as the real ones do::

    with Loopback(lambda asked: "the answer") as server:
        settings = LLMSettings(provider="openai-compatible", base_url=server.v1_url, model="test")

The script is a function of what was asked and returns the text of the reply, or a `Fault`.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal

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

_PATHS: Mapping[str, Api] = {
    "/v1/messages": "anthropic",
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
}
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


Answer = Callable[[Asked], str | Fault]


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


OVERLOADED = Fault("overloaded", error={"type": "overloaded_error", "message": "Overloaded"})


class Loopback:
    """The server, in threads of this process, closed with the `with` block.

    Attributes:
        asked: every request so far, refused ones included.
        tokens: what a reply reports as usage, by request and text; None reports nothing.
        thinking: reasoning sent before the text of each answer.
        headers: added to every response to what was asked.
    """

    def __init__(
        self,
        answer: Answer,
        tokens: Callable[[Asked, str], Tokens | None] = counted,
        thinking: str = "let me see",
    ) -> None:
        self.asked: list[Asked] = []
        self.tokens = tokens
        self.thinking = thinking
        self.headers: Callable[[Asked], Mapping[str, str]] = lambda asked: {}
        self._answer = answer
        self._lock = threading.Lock()
        self._closing = threading.Event()
        loopback = self

        class Handler(_Handler):
            server_of = loopback

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def base_url(self) -> str:
        """Address for the Anthropic SDK, which adds `/v1` itself."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def v1_url(self) -> str:
        """Address for OpenAI's SDK."""
        return f"{self.base_url}/v1"

    @property
    def count(self) -> int:
        """Requests so far."""
        return len(self.asked)

    def __enter__(self) -> Loopback:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def script(self, api: Api, body: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[Asked, str | Fault]:
        """Register a request and ask the script for its answer. Called by the request's own thread."""
        system, user = _texts(api, body)
        with self._lock:
            asked = Asked(len(self.asked), api, system, user, body, headers)
            self.asked.append(asked)
        return asked, self._answer(asked)

    def wait_for_close(self) -> None:
        """Block until the `with` block ends."""
        self._closing.wait()


def in_turn(*answers: str | Fault) -> Answer:
    """A script that gives these answers one after the other, and the last one from then on."""
    return lambda asked: answers[min(asked.number, len(answers) - 1)]


def _texts(api: Api, body: Mapping[str, Any]) -> tuple[str, str]:
    if api == "responses":
        return str(body.get("instructions", "")), str(body["input"])
    if api == "anthropic":
        return _joined(body.get("system", [])), _joined(body["messages"][0]["content"])
    by_role = {message["role"]: _joined(message["content"]) for message in body["messages"]}
    return by_role.get("system", ""), by_role["user"]


def _joined(content: str | Sequence[Mapping[str, str]]) -> str:
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


class _Handler(BaseHTTPRequestHandler):
    server_of: Loopback
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the tests look at `asked`."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        api = _PATHS.get(self.path)
        if api is None:
            self._send(404, "text/plain", b"404 page not found", {})
            return
        asked, answer = self.server_of.script(api, body, {name.lower(): value for name, value in self.headers.items()})
        fault = answer if isinstance(answer, Fault) else None
        headers = {**self.server_of.headers(asked), **(fault.headers if fault else {})}
        if fault and fault.kind == "silent":
            self.server_of.wait_for_close()
        elif fault and fault.kind in ("status", "error-200"):
            status = fault.status if fault.kind == "status" else 200
            self._send(status, "application/json", json.dumps({"error": fault.error}).encode(), headers)
        elif fault and fault.kind == "html":
            self._send(200, "text/html", b"<html><body>Please log in</body></html>", headers)
        else:
            self._stream(asked, answer, headers)

    def _send(self, status: int, kind: str, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        sent = {"content-type": kind, "content-length": str(len(body)), **headers}
        for name, value in sent.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, asked: Asked, answer: str | Fault, headers: Mapping[str, str]) -> None:
        fault = answer if isinstance(answer, Fault) else None
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        if fault and fault.kind == "drop":
            # A promise of more than comes, so that the client sees the connection break.
            self.send_header("content-length", "1000000")
        identity = f"req_{asked.number}"
        for name, value in {"request-id": identity, "x-request-id": identity, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        events = _EVENTS[asked.api](self.server_of, asked, answer)
        try:
            for index, event in enumerate(events):
                if fault and index == fault.after and self._interrupt(asked.api, fault):
                    return
                self.wfile.write(event)
            if asked.api == "chat":
                self.wfile.write(b"data: [DONE]\n\n")
        except (BrokenPipeError, ConnectionResetError):
            pass  # The client went away, which is its right.

    def _interrupt(self, api: Api, fault: Fault) -> bool:
        """Between two events: act out what breaks a stream. True when nothing more is to be sent."""
        if fault.kind == "hang":
            self.wfile.flush()
            self.server_of.wait_for_close()
        elif fault.kind == "drop":
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        elif fault.kind == "garbage":
            self.wfile.write(b"event: message_delta\ndata: {not json\n\n")
        elif fault.kind == "overloaded":
            self.wfile.write(_sse("error", _error_event(api, fault)))
        else:
            return fault.kind == "cut"
        return True


def _sse(event: str | None, data: object) -> bytes:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def _error_event(api: Api, fault: Fault) -> Mapping[str, Any]:
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


def _anthropic_events(server: Loopback, asked: Asked, answer: str | Fault) -> Iterator[bytes]:
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
    yield _sse(
        "message_start",
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "usage": usage or None}},
    )
    blocks: list[tuple[str, str]] = [("thinking", server.thinking)] if server.thinking else []
    if kind not in ("no-choices", "empty", "thought-only", "refusal"):
        blocks.append(("text", text))
    for index, (block, content) in enumerate(blocks):
        at = {"index": index}
        empty = {"type": block, block: ""}
        yield _sse("content_block_start", {"type": "content_block_start", **at, "content_block": empty})
        for piece in _pieces(content):
            delta = {"type": f"{block}_delta", block: piece}
            yield _sse("content_block_delta", {"type": "content_block_delta", **at, "delta": delta})
            yield _sse("ping", {"type": "ping"})
        yield _sse("content_block_stop", {"type": "content_block_stop", **at})
    reasons = {"refusal": "refusal", "window": "model_context_window_exceeded"}
    end = {"stop_reason": reasons.get(kind or "", stop), "stop_sequence": None}
    final = {"output_tokens": counts.output} if counts else None
    yield _sse("message_delta", {"type": "message_delta", "delta": end, "usage": final})
    yield _sse("message_stop", {"type": "message_stop"})


def _chat_events(server: Loopback, asked: Asked, answer: str | Fault) -> Iterator[bytes]:
    text, stop = _outcome("chat", answer)
    kind = answer.kind if isinstance(answer, Fault) else None
    head = {"id": f"chatcmpl-{asked.number}", "object": "chat.completion.chunk", "model": asked.body["model"]}

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        return _sse(None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    if kind == "no-choices":
        yield _sse(None, {**head, "choices": None})
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
        yield _sse(None, {**head, "choices": [], "usage": usage})


def _responses_events(server: Loopback, asked: Asked, answer: str | Fault) -> Iterator[bytes]:
    text, status = _outcome("responses", answer)
    kind = answer.kind if isinstance(answer, Fault) else None
    response: dict[str, Any] = {"id": f"resp_{asked.number}", "object": "response", "model": asked.body["model"]}
    yield _sse("response.created", {"type": "response.created", "response": {**response, "output": []}})
    for piece in _pieces(server.thinking):
        yield _sse("response.reasoning_text.delta", {"type": "response.reasoning_text.delta", "delta": piece})
    for piece in _pieces(text):
        yield _sse("response.output_text.delta", {"type": "response.output_text.delta", "delta": piece})
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
    yield _sse(f"response.{status}", {"type": f"response.{status}", "response": response})


_EVENTS: Mapping[Api, Callable[[Loopback, Asked, str | Fault], Iterator[bytes]]] = {
    "anthropic": _anthropic_events,
    "chat": _chat_events,
    "responses": _responses_events,
}
