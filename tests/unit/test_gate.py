"""Who may use a served UI, as an ASGI server asks it: tokens, and files of the home alone."""

import asyncio

import pytest
from mlflow.exceptions import MlflowException
from mlflow.store.artifact import artifact_repository_registry as registry

from search.tracking.server import TokenGate, confine_artifacts

TOKEN = "a-token"


def ask(path="/", query="", headers=(), kind="http"):
    """The status and headers of an answer, and how often a browser has come in. 200: it was let through."""
    sent, entered = [], []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        sent.append(message)

    gate = TokenGate(app, TOKEN, "name", lambda: entered.append(1))
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    scope = {"type": kind, "path": path, "query_string": query.encode(), "headers": raw}
    asyncio.run(gate(scope, None, send))
    answer = {k.decode(): v.decode() for k, v in sent[0].get("headers", [])}
    return sent[0].get("status"), answer, len(entered)


GOOD = [
    ("cookie", f"name={TOKEN}"), ("cookie", f"other=1; name={TOKEN}; last=2"), ("authorization", f"Bearer {TOKEN}"),
]  # fmt: skip
BAD = [
    ("cookie", "name="), ("cookie", f"other={TOKEN}"), ("cookie", f"name={TOKEN}x"), ("cookie", "name=é"),
    ("authorization", TOKEN), ("authorization", f"Basic {TOKEN}"), ("authorization", "Bearer"), ("x-token", TOKEN),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_a_cookie_or_a_bearer_is_let_through_and_nothing_else(kind):
    assert all(ask(headers=[header], kind=kind)[0] == 200 for header in GOOD)
    refused = 401 if kind == "http" else None
    assert all(ask(headers=[header], kind=kind)[0] == refused for header in [*BAD, ("host", "x")])


def test_an_address_with_the_token_becomes_a_cookie_and_the_address_without_it():
    status, headers, entered = ask("/page", f"a=1&token={TOKEN}&b=")
    assert (status, headers["location"], entered) == (302, "/page?a=1&b=", 1)
    assert headers["set-cookie"] == f"name={TOKEN}; HttpOnly; Path=/; SameSite=lax"
    assert ask("/", "token=guess")[::2] == ask("/", "token=")[::2] == ask("/", "token=%C3%A9")[::2] == (401, 0)


def test_health_and_start_need_none():
    assert ask("/health")[0] == ask(kind="lifespan")[0] == 200
    assert ask("/healthy")[0] == ask("/version")[0] == 401


@pytest.fixture
def repositories():
    """MLflow's kinds of artifact stores, put back afterwards."""
    known = registry.get_registered_artifact_repositories()
    before = dict(known)
    yield known
    known.clear()
    known |= before


def test_no_place_outside_of_the_home_has_artifacts(tmp_path, repositories):
    """Those of the home are read from a served UI in tests/scenarios/test_ui.py."""
    root, outside = tmp_path / "artifacts", tmp_path / "outside"
    root.mkdir()
    (root / "link").symlink_to(outside)
    confine_artifacts(root)
    for place in (outside.as_uri(), str(outside), (root / "link").as_uri(), f"{root}/../outside"):
        with pytest.raises(MlflowException, match="not in the home"):
            registry.get_artifact_repository(place)
    for place in ("s3://bucket/x", "http://stranger/x", "ftp://stranger/x", "runs:/0a1b/x"):
        with pytest.raises(MlflowException, match="Could not find a registered"):
            registry.get_artifact_repository(place)
