"""The server as a user starts it, and questions to it."""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[4]


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass
class Server:
    """A running one."""

    process: subprocess.Popen[str]
    url: str
    said: list[str]

    def ask(self, target: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> Answer:
        """Ask for exactly this target: nothing is normalised on the way."""
        address = urlsplit(self.url)
        assert address.hostname is not None
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=20)
        try:
            named = {"Host": f"{address.hostname}:{address.port}", **(headers or {})}
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in named.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, text)
        finally:
            connection.close()


@contextmanager
def serving(root: Path, *options: str) -> Iterator[Server]:
    """`python -m agent serve ROOT --port 0`, until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "agent", "serve", str(root), "--port", "0", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert first.startswith("http://"), first + process.stderr.read()
        yield Server(process, first.split()[0].rstrip("/"), [first])
    finally:
        process.kill()
        process.communicate()
