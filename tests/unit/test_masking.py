"""What is printed of addresses and errors: the one function that takes secrets out, and the command that uses it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.errors import masked, one_line, printable
from search.store.home import DATABASE
from tests.reference import environment

SECRET = "5ecret-canary"
AROUND = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=6)
SCHEMES = ["http://", "postgresql+psycopg://", "databricks://", "s3://", "sqlite://", "wss+x-1://", ""]


@st.composite
def addresses(draw, around=AROUND):
    """An address with the secret in one of the places that addresses have for one."""
    scheme, hidden = draw(st.sampled_from(SCHEMES)), draw(around) + SECRET + draw(around)
    host = draw(st.sampled_from(["host", "host:5000", "10.0.0.1", "[::1]:5000", "host/path", "host:5000/a/b"]))
    name = draw(st.sampled_from(["password", "sslpassword", "token", "api_key", "x", ""]))
    query = f"{name}={hidden}" if name else hidden
    where = draw(st.sampled_from(["user", "password", "query", "last of query", "fragment", "profile"]))
    if not scheme:
        where = draw(st.sampled_from(["password", "user and all"]))
    return {
        "user": f"{scheme}{hidden}@{host}",
        "password": f"{scheme}user:{hidden}@{host}",
        "user and all": f"{hidden}:{hidden}@{host}",
        "query": f"{scheme}{host}?{query}&more=1",
        "last of query": f"{scheme}user@{host}/?first=1&{query}",
        "fragment": f"{scheme}{host}/#{query}",
        "profile": f"databricks://{hidden}",
    }[where]


@given(st.sampled_from(["MLFLOW_TRACKING_URI", DATABASE, "HTTPS_PROXY"]), addresses(), AROUND)
def test_an_address_of_the_environment_is_never_seen_in_a_text(name, address, around):
    with environment({name: address}):
        assert SECRET not in masked(f"{around}GET {address} failed: {address!r}, {around}")


@given(addresses(st.text("abcxyz09:/@?&=#%;_-", max_size=6)))
def test_nor_is_one_from_elsewhere(address):
    """Unless there is white space in it: then nobody can say where it ends."""
    assert SECRET not in masked(f"GET {address} failed")


@pytest.mark.parametrize("text", [
    "http://host:5000/path/x", "s3://bucket/folder", "at 10:30, 2@3: refused", "seed 5/777 of 57p: 39,253 steps/s",
    "databricks", "see databricks or databricks-uc:",
    "see #5 and #6; what?no", "postgresql+psycopg://host/optuna", "sqlite:////home/me/runs/mlflow.db", "a&b",
])  # fmt: skip
def test_what_is_no_secret_stays(text):
    assert masked(text) == text
    with environment({"MLFLOW_TRACKING_URI": "databricks"}):
        assert masked(text) == text


@pytest.mark.parametrize("length", [10, 900, 5_000, 200_000])
def test_an_error_keeps_its_place_and_its_remedy(length):
    """Whatever another program says between the two."""
    text = f"MLflow store x: {'word ' * (length // 5)}run mlflow db upgrade"
    for line in (one_line(ValueError(text)), printable(text)):
        assert line.startswith("MLflow store x: word") and line.endswith("run mlflow db upgrade")
        assert len(line) < 1_100


@pytest.mark.parametrize(
    "name", ["MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY",
             "AWS_SESSION_TOKEN", "AZURE_STORAGE_CONNECTION_STRING", "RAY_AUTH_TOKEN", "DATABRICKS_TOKEN"],
)  # fmt: skip
def test_a_secret_of_the_environment_is_taken_out_wherever_it_is(name):
    with environment({name: SECRET}):
        assert masked(f"401: user me, password '{SECRET}'") == "401: user me, password '***'"
    with environment({name: "me"}):
        assert masked("401: some message") == "401: some message", "too short to be looked for"
