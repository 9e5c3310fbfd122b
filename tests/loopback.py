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
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from tests.loopback_events import EVENTS, Api, error_event, sse
from tests.loopback_events import Asked as Asked
from tests.loopback_events import Fault as Fault
from tests.loopback_events import Tokens as Tokens
from tests.loopback_events import counted as counted

_PATHS: Mapping[str, Api] = {
    "/v1/messages": "anthropic",
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
}
Answer = Callable[[Asked], str | Fault]


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
        events = EVENTS[asked.api](self.server_of, asked, answer)
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
            self.wfile.write(sse("error", error_event(api, fault)))
        else:
            return fault.kind == "cut"
        return True
