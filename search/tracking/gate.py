"""Who may use a served UI: a token that is made when it starts, as Jupyter has it, and files of its home alone."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

REFUSAL = b"""This page wants a token. Open the first address that adder-search ui has printed, then this one.
MLflow's clients find the token in MLFLOW_TRACKING_TOKEN.
"""
OPEN = ("/health",)
"""Paths that need no token: they say that the server is up."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def make_token() -> str:
    return secrets.token_urlsafe(24)


@dataclass
class TokenGate:
    """An ASGI application that hands on to `app` what brings the token: in its address, a cookie, or as a bearer.

    An address with the token is answered by a cookie and the address without it: it is not kept in histories
    and sent nowhere else. entered: called when that happens.
    """

    app: App
    token: str
    cookie: str
    """Name of the cookie: browsers send a host's cookies to all its ports."""
    entered: Callable[[], object] = lambda: None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope.get("path") in OPEN or self._is_known(scope):
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif self._is_token(dict(_query(scope)).get("token", "")):
            self.entered()
            rest = urlencode([(name, value) for name, value in _query(scope) if name != "token"])
            cookie = f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Lax"
            headers = {"location": scope["path"] + (f"?{rest}" if rest else ""), "set-cookie": cookie}
            await _answer(send, 302, headers | {"referrer-policy": "no-referrer"})
        else:
            headers = {"www-authenticate": "Bearer", "content-type": "text/plain"}
            await _answer(send, 401, headers, REFUSAL)

    def _is_known(self, scope: Message) -> bool:
        """True if a request brings the cookie or the bearer."""
        headers = [(name, value.decode("latin-1")) for name, value in scope["headers"]]
        cookies = (part.strip() for name, value in headers if name == b"cookie" for part in value.split(";"))
        bearers = (value for name, value in headers if name == b"authorization")
        pairs = [*(c.partition("=") for c in cookies), *(b.partition(" ") for b in bearers)]
        return any(kind in (self.cookie, "Bearer") and self._is_token(value) for kind, _, value in pairs)

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self.token.encode())


def _query(scope: Message) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


async def _answer(send: Send, status: int, headers: dict[str, str], body: bytes = b"") -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


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
