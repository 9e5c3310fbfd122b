"""The batch APIs of Anthropic and OpenAI on the loopback, beside the direct ones: real HTTP, scripted answers.

A batch ends after `looks` polls, in reverse order of its requests. Each request is answered by the server's script, as
if it had been asked directly; a `Fault` of kind `status` is a failed request, and `cut` one that was never begun.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from email.parser import BytesParser
from typing import Any

from tests.loopback import Answer, Asked, Fault, Loopback, _Handler, _texts, counted


@dataclass(slots=True)
class Made:
    """A batch as the server has it.

    Attributes:
        id: its id.
        items: requests by custom id.
        looks: polls so far.
        cancelled: whether somebody asked for its end.
        tag: OpenAI's metadata.
    """

    id: str
    items: Mapping[str, Mapping[str, Any]]
    looks: int = 0
    cancelled: bool = False
    tag: str = ""
    created: datetime = field(default_factory=lambda: datetime.now(timezone.utc))


class BatchLoopback(Loopback):
    """The server of `tests/loopback.py` with batch APIs.

    Attributes:
        made: every batch so far.
        calls: method and path of every request to the batch APIs.
        looks: after how many polls a batch ends; None: only once it is cancelled.
        deaf: cancelling does nothing.
        refuses: the status that answers an attempt to make a batch.
        loses: the connection breaks once a batch is made, before its id is told.
        forgets: no batch is known (any more).
        trips: how many looks from now on are answered by 500.
        portal: every call is answered by a web page.
    """

    def __init__(self, answer: Answer, looks: int | None = 1) -> None:
        super().__init__(answer)
        self.made: list[Made] = []
        self.calls: list[tuple[str, str]] = []
        self.looks = looks
        self.deaf = False
        self.refuses: int | None = None
        self.loses = False
        self.forgets = False
        self.trips = 0
        self.portal = False
        self.files: dict[str, bytes] = {}
        self.lock = threading.Lock()
        loopback = self

        class Handler(_BatchHandler):
            server_of = loopback

        self._server.RequestHandlerClass = Handler

    def __enter__(self) -> BatchLoopback:
        super().__enter__()
        return self

    def has_ended(self, made: Made) -> bool:
        """Whether all of a batch's work is done."""
        over = made.cancelled and not self.deaf
        return over or (self.looks is not None and made.looks >= self.looks)

    def answer_of(self, api: Any, made: Made, name: str) -> tuple[Asked, str | Fault]:
        """What the script says to one request of a batch."""
        body = made.items[name]
        asked = Asked(-1, api, *_texts(api, body), body, {})
        begun = self.looks is not None and made.looks >= self.looks
        return asked, self._answer(asked) if begun else Fault("cut")


class _BatchHandler(_Handler):
    server_of: BatchLoopback

    def do_GET(self) -> None:
        self._route("GET", b"")

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        if "/batches" not in path and "/files" not in path:
            super().do_POST()
            return
        self._route("POST", self.rfile.read(int(self.headers.get("content-length") or 0)))

    def _route(self, method: str, body: bytes) -> None:
        server, path = self.server_of, self.path.partition("?")[0]
        with server.lock:
            server.calls.append((method, path))
            status, answer = (_anthropic if "/messages/" in path else self._openai)(server, method, path, body)
            if method == "GET" and server.trips > 0:
                server.trips -= 1
                status, answer = 500, {"error": {"type": "api_error", "message": "it broke"}}
        if server.portal:
            self._send(200, "text/html", b"<html>Please log in</html>", {})
            return
        if status == 0:
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self._send(status, "application/octet-stream" if isinstance(answer, bytes) else "application/json", data, {})

    def _openai(self, server: BatchLoopback, method: str, path: str, body: bytes) -> tuple[int, Any]:
        if path == "/v1/files":
            parts = _parts(self.headers["content-type"], body)
            assert parts["purpose"] == b"batch"
            file_id = f"file-{len(server.files)}"
            server.files[file_id] = parts["file"]
            return 200, {"id": file_id, "object": "file", "purpose": "batch"}
        content = re.fullmatch(r"/v1/files/(.+)/content", path)
        if content is not None:
            return 200, server.files[content[1]]
        return _openai_batches(server, method, path, body)


def _known(server: BatchLoopback, path: str) -> Made | None:
    return next((m for m in server.made if f"/{m.id}" in path and not server.forgets), None)


_MISSING = {"error": {"type": "not_found_error", "message": "there is no such batch"}}


def _refused(server: BatchLoopback) -> tuple[int, Any]:
    return server.refuses or 500, {"error": {"type": "api_error", "message": "no batches today"}}


def _anthropic(server: BatchLoopback, method: str, path: str, body: bytes) -> tuple[int, Any]:
    if path == "/v1/messages/batches" and method == "GET":
        return 200, {"data": [_message_batch(server, m) for m in server.made if not server.forgets], "has_more": False}
    if path == "/v1/messages/batches":
        if server.refuses is not None:
            return _refused(server)
        items = {item["custom_id"]: item["params"] for item in json.loads(body)["requests"]}
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in items)
        server.made.append(Made(f"msgbatch_{len(server.made)}", items))
        return (0, None) if server.loses else (200, _message_batch(server, server.made[-1]))
    made = _known(server, path)
    if made is None:
        return 404, _MISSING
    if path.endswith("/cancel"):
        made.cancelled = True
    elif path.endswith("/results"):
        lines = [
            {"custom_id": name, "result": _message_result(server, made, name)} for name in reversed(list(made.items))
        ]
        return 200, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
    else:
        made.looks += 1
    return 200, _message_batch(server, made)


def _message_batch(server: BatchLoopback, made: Made) -> Mapping[str, Any]:
    ended = server.has_ended(made)
    counts = dict.fromkeys(("canceled", "errored", "expired", "processing", "succeeded"), 0)
    counts["succeeded" if ended else "processing"] = len(made.items)
    return {
        "id": made.id,
        "type": "message_batch",
        "processing_status": "ended" if ended else "canceling" if made.cancelled else "in_progress",
        "request_counts": counts,
        "created_at": made.created.isoformat(),
        "expires_at": (made.created + timedelta(days=1)).isoformat(),
        # A gateway hands on the provider's own address; nothing may be sent there.
        "results_url": f"http://127.0.0.1:9/v1/messages/batches/{made.id}/results" if ended else None,
    }


def _message_result(server: BatchLoopback, made: Made, name: str) -> Mapping[str, Any]:
    asked, answer = server.answer_of("anthropic", made, name)
    kind = answer.kind if isinstance(answer, Fault) else None
    if kind == "cut":
        return {"type": "canceled" if made.cancelled else "expired"}
    if isinstance(answer, Fault) and kind == "status":
        return {"type": "errored", "error": {"type": "error", "error": answer.error}}
    text = answer if isinstance(answer, str) else answer.text
    tokens = counted(asked, text)
    assert tokens is not None
    usage = {
        "input_tokens": tokens.prompt - tokens.cached - tokens.written,
        "cache_read_input_tokens": tokens.cached,
        "cache_creation_input_tokens": tokens.written,
        "output_tokens": tokens.output,
    }
    content = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": text}]
    stop = {"refusal": "refusal", "truncated": "max_tokens"}.get(kind or "", "end_turn")
    message = {"id": f"msg_{name}", "type": "message", "role": "assistant", "model": made.items[name]["model"]}
    return {
        "type": "succeeded",
        "message": {
            **message,
            "content": content if kind != "refusal" else [],
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": usage,
        },
    }


def _openai_batches(server: BatchLoopback, method: str, path: str, body: bytes) -> tuple[int, Any]:
    if path == "/v1/batches" and method == "GET":
        return 200, {"object": "list", "data": [_openai_batch(server, m) for m in server.made if not server.forgets]}
    if path == "/v1/batches":
        if server.refuses is not None:
            return _refused(server)
        asked = json.loads(body)
        lines = [json.loads(line) for line in server.files[asked["input_file_id"]].splitlines()]
        assert {(line["method"], line["url"]) for line in lines} == {("POST", asked["endpoint"])}
        items = {line["custom_id"]: line["body"] for line in lines}
        server.made.append(Made(f"batch_{len(server.made)}", items, tag=asked["metadata"]["roofclimb"]))
        return (0, None) if server.loses else (200, _openai_batch(server, server.made[-1]))
    made = _known(server, path)
    if made is None:
        return 404, _MISSING
    if path.endswith("/cancel"):
        made.cancelled = True
    else:
        made.looks += 1
    return 200, _openai_batch(server, made)


def _openai_batch(server: BatchLoopback, made: Made) -> Mapping[str, Any]:
    ended = server.has_ended(made)
    batch = {
        "id": made.id,
        "object": "batch",
        "endpoint": "/v1/responses",
        "completion_window": "24h",
        "created_at": int(made.created.timestamp()),
        "input_file_id": "file-0",
        "metadata": {"roofclimb": made.tag},
        "status": "cancelling" if made.cancelled else "in_progress",
    }
    if not ended:
        return batch
    good, bad = _openai_lines(server, made)
    server.files |= {f"{made.id}-out": good, f"{made.id}-err": bad}
    files = {"output_file_id": f"{made.id}-out" if good else None, "error_file_id": f"{made.id}-err" if bad else None}
    return {**batch, **files, "status": "cancelled" if made.cancelled else "completed"}


def _openai_lines(server: BatchLoopback, made: Made) -> tuple[bytes, bytes]:
    good: list[Mapping[str, Any]] = []
    bad: list[Mapping[str, Any]] = []
    for name in reversed(list(made.items)):
        asked, answer = server.answer_of("responses", made, name)
        line: dict[str, Any] = {"id": f"batch_req_{name}", "custom_id": name, "response": None, "error": None}
        if isinstance(answer, Fault) and answer.kind == "cut":
            code = "batch_cancelled" if made.cancelled else "batch_expired"
            bad.append({**line, "error": {"code": code, "message": "not begun"}})
        elif isinstance(answer, Fault) and answer.kind == "status":
            response = {"status_code": answer.status, "request_id": "r", "body": {"error": answer.error}}
            bad.append({**line, "response": response})
        else:
            response = {"status_code": 200, "request_id": f"req_{name}", "body": _response(asked, answer)}
            good.append({**line, "response": response})
    return _jsonl(good), _jsonl(bad)


def _response(asked: Asked, answer: str | Fault) -> Mapping[str, Any]:
    text = answer if isinstance(answer, str) else answer.text
    tokens = counted(asked, text)
    assert tokens is not None
    truncated = isinstance(answer, Fault) and answer.kind == "truncated"
    return {
        "id": "resp_0",
        "object": "response",
        "model": asked.body["model"],
        "status": "incomplete" if truncated else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if truncated else None,
        "output": [
            {"type": "reasoning", "id": "rs_0", "summary": []},
            {
                "type": "message",
                "id": "msg_0",
                "role": "assistant",
                "content": [{"type": "output_text", "text": text, "annotations": []}],
            },
        ],
        "usage": {
            "input_tokens": tokens.prompt,
            "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.written},
            "output_tokens": tokens.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens.prompt + tokens.output,
        },
    }


def _jsonl(lines: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()


def _parts(content_type: str, body: bytes) -> Mapping[str, bytes]:
    """The fields of a multipart form."""
    message = BytesParser().parsebytes(b"content-type: " + content_type.encode() + b"\n\n" + body)
    found = {}
    for part in message.get_payload():
        assert not isinstance(part, str)
        name = part.get_param("name", header="content-disposition")
        found[str(name)] = bytes(part.get_payload(decode=True) or b"")
    return found


def branch_steps(made: Made) -> set[str]:
    """The steps that a batch asks."""
    return {name.partition("-")[2] for name in made.items}
