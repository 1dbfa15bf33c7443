"""Access to a served UI: by a token made at its start, as Jupyter has it, and to artifacts of its home alone."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

REFUSAL = """This page wants a token. Open the first address that adder-search ui has printed, then this one.
MLflow's clients find the token in MLFLOW_TRACKING_TOKEN.
"""
OPEN = ("/health",)
"""Paths that need no token: they say that the server is up."""


def make_token() -> str:
    return secrets.token_urlsafe(24)


@dataclass
class TokenGate:
    """An ASGI application that hands on to `app` what brings the token, by cookie or as a bearer.

    An address with the token is answered by a cookie and the address without it: it is not kept in histories
    and sent nowhere else. entered: called when that happens.
    """

    app: ASGIApp
    token: str
    cookie: str
    """Name of the cookie: browsers send a host's cookies to all its ports."""
    entered: Callable[[], object] = lambda: None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in OPEN or self._is_known(HTTPConnection(scope)):
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._answer(HTTPConnection(scope))(scope, receive, send)

    def _answer(self, request: HTTPConnection) -> Response:
        """Return the answer to what brings neither cookie nor bearer."""
        if not self._is_token(request.query_params.get("token", "")):
            return PlainTextResponse(REFUSAL, 401, {"www-authenticate": "Bearer"})
        self.entered()
        rest = urlencode([(n, value) for n, value in request.query_params.multi_items() if n != "token"])
        address = request.scope["path"] + (f"?{rest}" if rest else "")
        answer = RedirectResponse(address, 302, {"referrer-policy": "no-referrer"})
        answer.set_cookie(self.cookie, self.token, httponly=True, samesite="lax")
        return answer

    def _is_known(self, request: HTTPConnection) -> bool:
        """True if a request brings the cookie or the bearer."""
        kind, _, bearer = request.headers.get("authorization", "").partition(" ")
        has_bearer = kind == "Bearer" and self._is_token(bearer)
        return has_bearer or self._is_token(request.cookies.get(self.cookie, ""))

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
