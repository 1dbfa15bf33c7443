"""The MLflow UI, served by this process itself: it starts no others, so none can be left behind.

Access is by a token made at its start, as Jupyter has it, and to artifacts of its home alone.
"""

import os
import secrets
import socket
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reports.markup import policy, sources
from search.errors import Failure
from search.store.home import Home

ADDRESS = "127.0.0.1"
OPENING = """<script>
for (const [key, value] of [
    ["mlflow.workflowType_v1", '"machine_learning"'],
    ["mlflow.assistant.fab.autoOpenedOnFirstLoad_v1", "true"],
]) if (localStorage.getItem(key) === null) localStorage.setItem(key, value);
const [page, query] = location.hash.split("?"), asked = new URLSearchParams(query);
if (asked.has("viewStateShareKey")) {
    const kept = ["workflowType", "viewStateShareKey", "compareRunsMode"].filter(key => asked.has(key));
    history.replaceState(null, "", page + "?" + new URLSearchParams(kept.map(key => [key, asked.get(key)])));
}
localStorage.setItem("adder-search.place", location.pathname);
</script>"""
"""Runs before MLflow's own scripts. It keeps the place for REFUSAL, whose origin other ports do not share. MLflow's own
would show a newcomer the pages for language models, with an assistant over a quarter of them; and a page that is loaded
again would lose its view to the order and filter in its address."""

REFUSAL = r"""<!DOCTYPE html><meta charset="utf-8"><title>adder-search ui</title>
<script>
const place = localStorage.getItem("adder-search.place") ?? "";
if (/^(\/[\w.~-]+)+\/$/.test(place) && location.pathname !== place) location.replace(place + location.hash);
</script>
<p>This page wants a token. Open the first address that adder-search ui has printed, then this one.
MLflow's clients find the token in MLFLOW_TRACKING_TOKEN.</p>
"""
"""Leads a browser that was let in before to where it was (OPENING keeps that): addresses of pages need not say it."""
REFUSED = {"content-security-policy": policy(f"script-src {sources([REFUSAL])}"), "referrer-policy": "no-referrer"}
OPEN = ("/health",)
"""Paths that need no token: they say that the server is up."""


def listening(port: int) -> socket.socket:
    """Open a socket that takes connections from now on: one that comes before the server is up waits.

    Raises Failure if the port is taken.
    """
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((ADDRESS, port))
    except OSError as error:
        listener.close()
        raise Failure(f"port {port}: {error.strerror}; choose another with --port") from None
    listener.listen()
    return listener


def serve(
    listener: socket.socket,
    home: Home,
    uri: str,
    token: str | None,
    entered: Callable[[], object] = lambda: None,
    pages: Sequence[str] = (),
    behind: str = "",
) -> None:
    """Serve the UI until this process is told to end: by SIGTERM or Ctrl-C in good order, else at once.

    token: what a request has to bring (None: nothing). entered: called when a browser has brought it.
    pages: those that may be among the artifacts, whose scripts are to run when they are shown.
    behind: the address under which a proxy serves it, if one does.
    What `mlflow ui` does, without its further processes: nothing can tell those of a SIGKILL.
    """
    os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # nine processes for nothing
    outside = urlsplit(behind)
    if outside.netloc:  # MLflow's server reads this when it is imported
        hosts = [f"{host}{port}" for host in ("localhost", ADDRESS, outside.hostname) for port in ("", ":*")]
        os.environ.setdefault("MLFLOW_SERVER_ALLOWED_HOSTS", ",".join(hosts))
        os.environ.setdefault("MLFLOW_SERVER_CORS_ALLOWED_ORIGINS", f"{outside.scheme}://{outside.netloc}")
    import uvicorn  # before MLflow's server, which looks if it is loaded
    from mlflow.server import constants

    os.environ[constants.BACKEND_STORE_URI_ENV_VAR] = os.environ[constants.REGISTRY_STORE_URI_ENV_VAR] = uri
    os.environ[constants.ARTIFACT_ROOT_ENV_VAR] = home.artifacts.as_uri()
    os.chdir(home.path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Starlette's, about what MLflow uses
        from mlflow.server.fastapi_app import app, flask_app

    page = (Path(str(flask_app.static_folder)) / "index.html").read_text(encoding="utf-8")
    page = page.replace("<head>", f"<head>{OPENING}", 1)
    app.router.routes.insert(0, Route("/", lambda request: HTMLResponse(page)))
    confine_artifacts(home.artifacts)
    ruled = ruled_by(app, page_policy([OPENING, REFUSAL, *pages]))
    gate, prefix = ruled, outside.path.rstrip("/")
    if token is not None:
        cookie = f"adder-search-{listener.getsockname()[1]}"
        gate = TokenGate(ruled, token, cookie, entered, prefix, outside.scheme == "https")
    served = without_prefix(gate, prefix)
    config = uvicorn.Config(served, log_level="warning", timeout_graceful_shutdown=2)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])


def place_of(token: str) -> str:
    """Return the path of the UI for who has a token: browsers send its cookie to no other path, on no other port.

    They send a host's cookies to all its ports, and whoever listens at one may have written what the UI shows.
    """
    return f"/{sha256(token.encode()).hexdigest()[:32]}"


def page_policy(pages: Sequence[str]) -> str:
    """Return the policy of all that is served: from here alone, with MLflow's scripts and those of these pages."""
    return policy(
        f"script-src 'self' {sources(pages)}",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "manifest-src 'self'",
        "worker-src 'self' blob:",
        "frame-src 'self' blob:",
        "frame-ancestors 'none'",
    )


def ruled_by(app: ASGIApp, rules: str) -> ASGIApp:
    """Return an application whose answers all have a policy, and whose pages tell nobody where they are."""

    async def ruled(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_ruled(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["content-security-policy"] = rules
                headers["referrer-policy"] = "same-origin"
            await send(message)

        await app(scope, receive, send_ruled)

    return ruled


def without_prefix(app: ASGIApp, prefix: str) -> ASGIApp:
    """Return an application for a proxy that may pass on, or leave out, the path under which it serves this one."""

    async def app_below(scope: Scope, receive: Receive, send: Send) -> None:
        if prefix and scope.get("path", "").startswith(f"{prefix}/"):
            scope = _below(scope, prefix)
        await app(scope, receive, send)

    return app_below


def _below(scope: Scope, place: str) -> Scope:
    """Return a scope whose path begins behind a place."""
    raw_path = scope.get("raw_path", scope["path"].encode())
    return {**scope, "path": scope["path"].removeprefix(place), "raw_path": raw_path[len(place) :]}


@dataclass
class TokenGate:
    """An ASGI application that hands on to `app` what brings the token: by cookie at its place, or as a bearer.

    An address with the token is answered by a cookie and the address at that place without it: it is not kept in
    histories and sent nowhere else. entered: called when that happens. prefix: of a proxy's addresses, which browsers
    see. is_secure: they are of https.
    """

    app: ASGIApp
    token: str
    cookie: str
    """Name of the cookie."""
    entered: Callable[[], object] = lambda: None
    prefix: str = ""
    is_secure: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        place = place_of(self.token)
        is_at_place = scope.get("path", "").startswith(f"{place}/")
        if is_at_place:
            scope = _below(scope, place)
        is_free = scope["type"] == "lifespan" or scope["path"] in OPEN
        if is_free or self._is_known(HTTPConnection(scope), is_at_place):
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._answer(HTTPConnection(scope))(scope, receive, send)

    def _answer(self, request: HTTPConnection) -> Response:
        """Return the answer to what brings neither cookie nor bearer.

        It leads to this server whatever is asked for: the path begins with the place.
        """
        if not self._is_token(request.query_params.get("token", "")):
            return HTMLResponse(REFUSAL, 401, {"www-authenticate": "Bearer", **REFUSED})
        self.entered()
        place = self.prefix + place_of(self.token)
        rest = urlencode([(n, value) for n, value in request.query_params.multi_items() if n != "token"])
        address = place + request.scope["path"] + (f"?{rest}" if rest else "")
        answer = RedirectResponse(address, 302, {"referrer-policy": "no-referrer"})
        answer.set_cookie(
            self.cookie, self.token, path=f"{place}/", secure=self.is_secure, httponly=True, samesite="lax"
        )
        return answer

    def _is_known(self, request: HTTPConnection, is_at_place: bool) -> bool:
        """True if a request brings the cookie, at the UI's place, or the bearer."""
        kind, _, bearer = request.headers.get("authorization", "").partition(" ")
        has_bearer = kind == "Bearer" and self._is_token(bearer)
        return has_bearer or (is_at_place and self._is_token(request.cookies.get(self.cookie, "")))

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self.token.encode())


def confine_artifacts(root: Path) -> None:
    """Have MLflow's server in this process read and write artifacts below a folder only.

    An experiment may name any place as that of its artifacts, and a link may lead to any.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import PERMISSION_DENIED
    from mlflow.store.artifact.artifact_repository_registry import get_registered_artifact_repositories
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

    class HomeArtifacts(LocalArtifactRepository):
        def __init__(self, artifact_uri: str, *args: Any, **options: Any):
            super().__init__(artifact_uri, *args, **options)
            if not Path(self.artifact_dir).resolve().is_relative_to(root.resolve()):
                raise MlflowException("these artifacts are not in the home", PERMISSION_DENIED)

    repositories = get_registered_artifact_repositories()
    repositories.clear()
    repositories |= dict.fromkeys(("", "file"), HomeArtifacts)
