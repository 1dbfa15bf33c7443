"""Who may use a served UI, as an ASGI server asks it: tokens, and files of the home alone."""

import asyncio
from urllib.parse import urljoin, urlsplit

import pytest
from mlflow.exceptions import MlflowException
from mlflow.store.artifact import artifact_repository_registry as registry

from tracking.server import (
    OPENING,
    REFUSAL,
    TokenGate,
    confine_artifacts,
    page_policy,
    place_of,
    ruled_by,
    without_prefix,
)

TOKEN = "a-token"
PLACE = place_of(TOKEN)


def answer_of(wrap, scope):
    """The status and headers that an application answers with behind what `wrap` puts before it."""
    sent = []

    async def app(scope, receive, send):
        headers = [(b"x-path", scope.get("path", "").encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def send(message):
        sent.append(message)

    asyncio.run(wrap(app)(scope, None, send))
    return sent[0].get("status"), {k.decode(): v.decode() for k, v in sent[0].get("headers", [])}


def ask(path=f"{PLACE}/", query="", headers=(), kind="http", prefix="", is_secure=False):
    """The status and headers of an answer, and how often a browser has come in. 200: it was let through."""
    entered = []

    def gate(app):
        return without_prefix(TokenGate(app, TOKEN, "name", lambda: entered.append(1), prefix, is_secure), prefix)

    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    scope = {"type": kind, "path": path, "query_string": query.encode(), "headers": raw}
    return *answer_of(gate, scope), len(entered)


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


def test_a_cookie_counts_at_the_uis_place_alone_and_a_bearer_anywhere():
    cookie, _, bearer = GOOD
    for path in ("/", "/x", PLACE, f"{PLACE}x/", f"/x{PLACE}/", f"/{PLACE}/"):
        assert (ask(path, headers=[cookie])[0], ask(path, headers=[bearer])[0]) == (401, 200)
    assert [ask(path, headers=[bearer])[1]["x-path"] for path in (f"{PLACE}/x", f"{PLACE}/", "/x")] == ["/x", "/", "/x"]


@pytest.mark.parametrize("path", ["/page", f"{PLACE}/page"])
def test_an_address_with_the_token_becomes_a_cookie_of_the_place_and_the_address_there(path):
    """Browsers send a host's cookies to all its ports, but to no other path."""
    status, headers, entered = ask(path, f"a=1&token={TOKEN}&b=")
    assert (status, headers["location"], entered) == (302, f"{PLACE}/page?a=1&b=", 1)
    assert headers["set-cookie"] == f"name={TOKEN}; HttpOnly; Path={PLACE}/; SameSite=lax"
    assert ask("/", "token=guess")[::2] == ask("/", "token=")[::2] == ask("/", "token=%C3%A9")[::2] == (401, 0)


@pytest.mark.parametrize("passed", ["", "/lab/adder"])  # proxies leave their path out, or pass it on
def test_behind_a_proxy_cookie_and_addresses_are_below_its_path(passed):
    prefix = "/lab/adder"
    status, headers, entered = ask(f"{passed}/page", f"token={TOKEN}&b=", prefix=prefix, is_secure=True)
    assert (status, headers["location"], entered) == (302, f"{prefix}{PLACE}/page?b=", 1)
    assert headers["set-cookie"] == f"name={TOKEN}; HttpOnly; Path={prefix}{PLACE}/; SameSite=lax; Secure"
    status, headers, _ = ask(f"{passed}{PLACE}/page", headers=GOOD[:1], prefix=prefix)
    assert (status, headers["x-path"]) == (200, "/page")
    assert ask("/lab/adderx/", headers=GOOD[:1], prefix=prefix)[0] == 401


@pytest.mark.parametrize(
    "path",
    [
        "//evil",
        "///evil/x",
        "/\\evil",
        "\\\\evil",
        "/\t/evil",
        "/\r\nset-cookie: a=b",
        "/http://evil",
        "//e@evil:80",
        "/..",
    ],
)
def test_whatever_is_asked_for_the_token_leads_to_this_server(path):
    """A path arrives with its escapes undone: /%2f/evil is ///evil."""
    _, headers, _ = ask(path, f"token={TOKEN}")
    target = urljoin("http://127.0.0.1:5000/", headers["location"])
    assert headers["location"].startswith(f"{PLACE}/") or path[0] == "\\"
    assert urlsplit(target).netloc == "127.0.0.1:5000" and not set("\\\r\n\t") & set(headers["location"])


def test_every_answer_has_the_policy():
    """Scripts are MLflow's files and those of our own pages; nothing is asked of another host or port."""
    rules = page_policy([OPENING, "<script>ours()</script>"])
    _, headers = answer_of(lambda app: ruled_by(app, rules), {"type": "http"})
    assert headers == {"x-path": "", "content-security-policy": rules, "referrer-policy": "same-origin"}
    parts = dict(rule.split(" ", 1) for rule in rules.split("; "))
    assert parts["default-src"] == parts["base-uri"] == parts["frame-ancestors"] == "'none'"
    assert parts["script-src"].count("'sha256-") == 2 and "unsafe" not in parts["script-src"]
    own = {"'self'", "'none'", "data:", "blob:", "'unsafe-inline'"}
    assert {source for rule in parts.values() for source in rule.split() if "sha256" not in source} <= own
    _, refused, _ = ask("/")
    assert refused["content-security-policy"].startswith("default-src 'none'; script-src 'sha256-")
    assert refused["referrer-policy"] == "no-referrer" and TOKEN not in REFUSAL + str(refused)


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
