"""`serve`: the page's server, from its socket to Ctrl-C."""

from __future__ import annotations

import ipaddress
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import uvicorn

from agent.errors import ConfigError, UnfitEnvironment
from agent.serve.app import make_app
from agent.serve.catalog import Catalog
from agent.watching.folder import LOG
from agent.watching.nights import NIGHT_LOG


def serve(root: Path, host: str, port: int, told: TextIO) -> tuple[Mapping[str, Any], str]:
    """Serve a folder of runs until Ctrl-C.

    Args:
        root: the folder of runs.
        host: the address to listen on.
        port: 0 picks a free one.
        told: where the page's address is written once it answers.

    Raises:
        ConfigError: not a folder of runs, or an address that cannot be listened on.
        UnfitEnvironment: the port is taken.
    """
    for log, what in ((LOG, "run"), (NIGHT_LOG, "night")):
        if (root / log).is_file():
            raise ConfigError(f"{root}: is a {what}; serve the folder that holds it: {root.resolve().parent}")
    if not root.is_dir():
        raise ConfigError(f"{root}: no such folder; give the folder of the runs (`output` of the task file)")
    root = root.resolve()
    listener = _listen(host, port)
    with listener:
        url = _url(host, listener.getsockname()[1])
        catalog = Catalog(root)
        # Many old runs take seconds to read, once: that begins now, not when the page is opened.
        threading.Thread(target=catalog.refresh, daemon=True).start()
        app = make_app(catalog, _names(host))
        config = uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=0,  # a page that is being drawn when Ctrl-C comes is not worth waiting for
        )
        told.write(f"{url} shows {root}; Ctrl-C ends\n")
        told.flush()
        if not _is_loopback(host):
            sys.stderr.write(
                f"roofclimb: warning: {host} can be reached from other machines; whoever can reads all of {root} "
                "without a password\n"
            )
        try:
            uvicorn.Server(config).run(sockets=[listener])
        except KeyboardInterrupt:
            pass  # the way it is meant to end
    return {"url": url, "folder": str(root)}, ""


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"--host {host}: cannot be listened on ({error.strerror})") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(64)
    except OSError as error:
        listener.close()
        raise UnfitEnvironment(
            f"{host} port {port}: cannot be listened on ({error.strerror}); give another --port, or 0 for any"
        ) from None
    return listener


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def _names(host: str) -> frozenset[str]:
    """Names, besides addresses, under which a browser may ask."""
    own = () if _is_loopback(host) else (host, socket.gethostname(), socket.getfqdn())
    return frozenset(name.lower() for name in ("localhost", *own))
