"""Bedrock, Vertex and Azure on the loopback, as far as one streamed request: their paths, sign-in and framing."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, unquote

from tests.loopback import Answer, Asked, Fault, Loopback, _Handler
from tests.loopback_events import EVENTS, Api

_BEDROCK = re.compile(r"/model/([^/]+)/invoke-with-response-stream")
_VERTEX = re.compile(r"/projects/([^/]+)/locations/([^/]+)/publishers/anthropic/models/([^/:]+):streamRawPredict")
_AZURE = re.compile(r"/openai/responses\?(.*)")


class CloudLoopback(Loopback):
    """The server of `tests/loopback.py` under the paths of the clouds.

    Attributes:
        where: what the path of each request said beside the model.
        tokens_given: how often Google's token server was asked.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.where: list[tuple[str, ...]] = []
        self.tokens_given = 0
        loopback = self

        class Handler(_CloudHandler):
            server_of = loopback

        self._server.RequestHandlerClass = Handler

    def __enter__(self) -> CloudLoopback:
        super().__enter__()
        return self


class _CloudHandler(_Handler):
    server_of: CloudLoopback

    def do_POST(self) -> None:
        server = self.server_of
        data = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/token":
            server.tokens_given += 1
            given = {"access_token": f"token-{server.tokens_given}", "expires_in": 3600, "token_type": "Bearer"}
            self._send(200, "application/json", json.dumps(given).encode(), {})
            return
        body = json.loads(data)
        api: Api = "anthropic"
        if found := _BEDROCK.fullmatch(self.path):
            body["model"] = unquote(found[1])
            server.where.append(("bedrock",))
        elif found := _VERTEX.fullmatch(self.path):
            body["model"] = found[3]
            server.where.append(("vertex", found[1], found[2]))
        elif found := _AZURE.fullmatch(self.path):
            api = "responses"
            server.where.append(("azure", *parse_qs(found[1])["api-version"]))
        else:
            self._send(404, "text/plain", b"404 page not found", {})
            return
        asked, answer = server.script(api, body, {name.lower(): value for name, value in self.headers.items()})
        if isinstance(answer, Fault) and answer.kind == "status":
            self._send(answer.status, "application/json", json.dumps(answer.error).encode(), answer.headers)
        elif server.where[-1][0] == "bedrock":
            self._frames(asked, answer)
        else:
            self._stream(asked, answer, {})

    def _frames(self, asked: Asked, answer: str | Fault) -> None:
        """Amazon's framing of a stream of events."""
        self.send_response(200)
        self.send_header("content-type", "application/vnd.amazon.eventstream")
        self.send_header("x-amzn-requestid", f"req_{asked.number}")
        self.end_headers()
        for index, event in enumerate(EVENTS["anthropic"](self.server_of, asked, answer)):
            if isinstance(answer, Fault) and answer.kind == "overloaded" and index == 1:
                self.wfile.write(
                    _frame({":message-type": "exception", ":exception-type": "throttlingException"}, answer.error)
                )
                return
            payload = event.partition(b"data: ")[2].strip()
            content = {"bytes": base64.b64encode(payload).decode()}
            self.wfile.write(_frame({":message-type": "event", ":event-type": "chunk"}, content))


def _frame(headers: Mapping[str, str], content: Any) -> bytes:
    head = b""
    for name, value in {**headers, ":content-type": "application/json"}.items():
        head += struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
    body = json.dumps(content).encode()
    prelude = struct.pack("!II", 16 + len(head) + len(body), len(head))
    frame = prelude + struct.pack("!I", zlib.crc32(prelude)) + head + body
    return frame + struct.pack("!I", zlib.crc32(frame))
