"""The served page: addresses, and what every answer is held to.

Only GET and HEAD; nothing is written, run or fetched. Pages are rendered here and hold no script but ours, a file of a
run is shown in a sandbox of its own.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Collection
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.serve.catalog import Catalog
from agent.serve.compare import compare
from agent.serve.files import read_file
from agent.serve.pages import Pages

_STATIC = Path(__file__).parent / "static"
_PAGE_CSS = Path(__file__).parent.parent / "report" / "templates" / "page.css.j2"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A report is a whole page with a script of its own, which its own policy names by hash. It gets an origin of its own as
# well, so that a file somebody put there reads nothing else of what is served, and can send nothing.
_FILE_POLICY = (
    "sandbox allow-scripts allow-popups; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def make_app(catalog: Catalog, names: Collection[str]) -> ASGIApp:
    """The application.

    Args:
        catalog: the runs.
        names: host names, besides addresses, under which it may be asked.
    """
    pages = Pages()
    static = _load_static()

    def runs(request: Request) -> Response:
        catalog.refresh()
        return _html(pages.runs(catalog))

    def run(request: Request) -> Response:
        name = request.path_params["name"]
        if name == "latest":
            return _latest(catalog)
        catalog.refresh()
        view = catalog.run(name)
        return _html(pages.run(catalog, view)) if view else _missing(pages, f"There is no run {name}.")

    def fragment(request: Request) -> Response:
        """The part of a page that changes; 304 where it has not."""
        catalog.refresh()
        stamp = f'"{catalog.version}"'
        if request.headers.get("if-none-match") == stamp:
            return Response(status_code=304, headers={"etag": stamp})
        name = request.query_params.get("run")
        view = catalog.run(name) if name else None
        if name and view is None:
            return PlainTextResponse("no such run", 404)
        text = pages.run_fragment(view) if view else pages.runs_fragment(catalog)
        return _html(text, headers={"etag": stamp})

    def comparison(request: Request) -> Response:
        catalog.refresh()
        asked = [request.query_params.get(key, "") for key in ("a", "b")]
        views = [catalog.run(name) for name in asked]
        missing = [name for name, view in zip(asked, views, strict=True) if view is None]
        if missing or views[0] is None or views[1] is None:
            return _missing(pages, f"There is no run {missing[0]}." if missing[0] else "Choose two runs to compare.")
        return _html(pages.comparison(compare(catalog.root, views[0], views[1])))

    def file(request: Request) -> Response:
        found = read_file(catalog.root, request.path_params["name"])
        if found is None:
            return _missing(pages, "There is no such file, or it is not shown.")
        headers = {"content-security-policy": _FILE_POLICY}
        return Response(found.content, media_type=found.media_type, headers=headers)

    def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in static:
            return _missing(pages, "There is no such file.")
        content, media_type, stamp = static[name]
        if request.headers.get("if-none-match") == stamp:
            return Response(status_code=304, headers={"etag": stamp})
        return Response(content, media_type=media_type, headers={"etag": stamp, "cache-control": "no-cache"})

    def not_found(request: Request, error: Exception) -> Response:
        return _missing(pages, "There is no such page.")

    routes = [
        Route("/", runs),
        Route("/run/{name:path}", run),
        Route("/compare", comparison),
        Route("/fragment", fragment),
        Route("/files/{name:path}", file),
        Route("/static/{name}", asset),
    ]
    return _Guard(Starlette(routes=routes, exception_handlers={404: not_found}), names)


def _html(text: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(text, status, media_type="text/html; charset=utf-8", headers=headers)


def _missing(pages: Pages, text: str) -> Response:
    return _html(pages.message("Not here", text), 404)


def _latest(catalog: Catalog) -> Response:
    """`latest` is a link in the folder; it stands for the newest run."""
    catalog.refresh()
    runs = catalog.runs()
    return RedirectResponse(f"/run/{runs[0].name}" if runs else "/", 302)


def _load_static() -> dict[str, tuple[bytes, str, str]]:
    types = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
    files = {path.name: path for path in _STATIC.iterdir() if path.suffix in types} | {"page.css": _PAGE_CSS}
    return {name: _asset(path.read_bytes(), types[Path(name).suffix]) for name, path in files.items()}


def _asset(content: bytes, media_type: str) -> tuple[bytes, str, str]:
    return content, media_type, f'"{hashlib.sha256(content).hexdigest()[:16]}"'


class _Guard:
    """Turns away what no page of ours asks for, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                extra = {"content-security-policy": _POLICY, **_HEADERS}
                message["headers"] += [(k.encode(), v.encode()) for k, v in extra.items() if k.encode() not in present]
            await send(message)

        refused = self._refused(scope)
        await (refused or self._app)(scope, receive, guarded)

    def _refused(self, scope: Scope) -> Response | None:
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("read-only\n", 405, headers={"allow": "GET, HEAD"})
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not _is_own(hosts[0], self._names):
            return PlainTextResponse("asked under a name that is not this server's; use its address, or --host\n", 421)
        return None


def _is_own(host: str, names: Collection[str]) -> bool:
    """Whether a Host header can be trusted.

    A page elsewhere that has its own name lead here (DNS rebinding) asks under that name; an address is nobody's name.
    """
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    if name.lower() in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
