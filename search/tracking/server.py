"""The MLflow UI, served by this process itself: it starts no others, so none can be left behind."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from search.errors import Failure
from search.store.home import Home
from search.tracking.gate import TokenGate, confine_artifacts

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
</script>"""
"""Runs before MLflow's own scripts. These would show a newcomer the pages for language models, with an assistant over
a quarter of them; and a page that is loaded again would lose its view to the order and filter in its address."""


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
) -> None:
    """Serve the UI until this process is told to end: by SIGTERM or Ctrl-C in good order, else at once.

    token: what a request has to bring (None: nothing). entered: called when a browser has brought it.
    What `mlflow ui` does, without its further processes: nothing can tell those of a SIGKILL.
    """
    os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # nine processes for nothing
    import uvicorn  # before MLflow's server, which looks if it is loaded
    from mlflow.server import constants
    from starlette.responses import HTMLResponse
    from starlette.routing import Route

    os.environ[constants.BACKEND_STORE_URI_ENV_VAR] = os.environ[constants.REGISTRY_STORE_URI_ENV_VAR] = uri
    os.environ[constants.ARTIFACT_ROOT_ENV_VAR] = home.artifacts.as_uri()
    os.chdir(home.path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Starlette's, about what MLflow uses
        from mlflow.server.fastapi_app import app, flask_app

    page = (Path(str(flask_app.static_folder)) / "index.html").read_text()
    page = page.replace("<head>", f"<head>{OPENING}", 1)
    app.router.routes.insert(0, Route("/", lambda request: HTMLResponse(page)))
    confine_artifacts(home.artifacts)
    gate = (
        app if token is None else TokenGate(app, token, f"adder-search-{listener.getsockname()[1]}", entered)
    )
    config = uvicorn.Config(gate, log_level="warning", timeout_graceful_shutdown=2)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])
