"""What `ui` prints and opens, without the server; and the views that it opens on, as MLflow keeps its own."""

import html
import re
import socket
import webbrowser
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from search.store.ledger import Ledger
from search.study.file import load_study
from tests.commands import call, fails_with_one
from tests.homes import empty_home
from tests.processes import free_port
from tracking import server, store, views
from tracking import ui as ui_command
from tracking.store import connect
from tracking.views import write_views

pages = []


def follow_links(home, token):
    """Read the page that a browser was started with, as it does while the server runs."""
    for file in home.path.glob("*.html"):
        assert file.stat().st_mode & 0o777 == 0o600
        pages.append(html.unescape(file.read_text()).partition("url=")[2].partition('"')[0])


@pytest.fixture
def client(here, monkeypatch):
    """Of a home in the current folder, whose `ui` serves nothing."""
    monkeypatch.setattr(
        server, "serve", lambda door, home, uri, token, entered, pages, behind: follow_links(home, token)
    )
    home = empty_home("adder-runs")
    Ledger(home)
    return connect(home, creates=True)


def shown(client, study):
    """Make a study's experiment. Returns its id."""
    return client.create_experiment(study, tags={store.STUDY_TAG: study})


@pytest.fixture
def opened(monkeypatch):
    """The pages that were opened at a terminal with a display; links that were followed are in `pages`."""
    opened = []
    pages.clear()
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(ui_command, "_has_display", lambda: True)
    return opened


def test_the_latest_studies_are_listed_first_and_the_first_is_opened(client, opened, here):
    for i in range(22):
        shown(client, f"old-{i}")
    mine = shown(client, "57p")
    write_views(client, load_study("57p"), mine)
    port = free_port()
    lines = call("ui", "--port", port).stdout.splitlines()
    start, address = lines[0].partition(" ")[0], f"http://127.0.0.1:{port}/"
    assert re.fullmatch(rf"{re.escape(address)}\?token=[\w-]{{32}}#/experiments", start)
    start = start.removesuffix("#/experiments")
    assert lines.pop(1) == "These work in a browser that has opened it:" and "token" not in "".join(lines[1:])
    names = [line.strip() for line in lines if line.startswith("  ") and line[2] != " "]
    assert names == ["57p", *(f"old-{i}" for i in range(21, 2, -1))]
    table = f"#/experiments/{mine}/runs?workflowType=machine_learning"
    table += "&viewStateShareKey=adder-search-table&compareRunsMode=TABLE"
    charts = table.replace("table", "charts").replace("TABLE", "CHART")
    assert lines[1:4] == ["  57p", f"    table  {address}{table}", f"    charts {address}{charts}"]
    assert lines[4].startswith("    seeds ")
    assert lines[6] == f"    runs   {address}#/experiments/22/runs?workflowType=machine_learning"
    assert pages == [start + table] and not any("token" in page for page in opened), (
        "all users see what a browser is told"
    )
    assert opened == [(here / "adder-runs" / "ui.html").as_uri()] and not list(here.rglob("ui.html"))


def test_studies_of_one_name_of_several_ledgers_are_told_apart(client, capsys):
    for name in ("57p", "57p (host 0a1b2c)", "57p (\x1b[31m)", "what I call it"):
        client.create_experiment(name, tags={store.STUDY_TAG: "57p"})
    ui_command.show_studies(client, "http://127.0.0.1:5000/")
    names = [line.strip() for line in capsys.readouterr().out.splitlines() if "http" not in line]
    assert sorted(names) == ["57p", "57p", "57p", "57p (host 0a1b2c)"]


def test_the_token_is_another_each_time_and_left_out_by_name_only(client):
    starts = {call("ui", "--port", free_port()).stdout.partition("token=")[2] for _ in range(2)}
    assert len(starts) == 2 and "" not in starts
    port = free_port()
    plain = call("ui", "--port", port, "--no-auth").stdout
    assert plain.startswith(f"http://127.0.0.1:{port}/#/experiments shows ") and "These work" not in plain


def test_a_server_that_has_the_records_shows_them_itself(client, opened, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://records:5000")
    monkeypatch.setattr(store, "connect", lambda home, uri: client)
    write_views(client, load_study("57p"), shown(client, "57p"))
    said, _, table, charts, seeds = call("ui").stdout.splitlines()
    assert said == "the records are on the MLflow server http://records:5000"
    assert opened == [table.split()[1]] and table.split()[1].startswith("http://records:5000/#/experiments/")
    assert [line.split()[0] for line in (charts, seeds)] == ["charts", "seeds"]


def test_a_port_that_is_taken_is_said(client):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert fails_with_one(1, "ui", "--port", port) == (
            f"port {port}: Address already in use; choose another with --port"
        )


def test_a_study_of_constraints_has_views_of_its_own_and_a_table_by_constraint():
    client = MagicMock()
    client.get_experiment.return_value = SimpleNamespace(creation_time=1_700_000_000_000, tags={})
    write_views(client, load_study("constraints"), "1")
    assert len({name for _, name, _ in (given.args for given in client.set_experiment_tag.call_args_list)}) == 5
    table = views.constraints_view().state
    assert table["groupBy"]["groupByKeys"] == [{"mode": "param", "groupByData": "constraint"}]
    assert table["selectedColumns"][:4] == [
        "params.`scale`", "params.`constraint`", "params.`toggled`", "metrics.`table.ratio`",
    ]  # fmt: skip


def test_what_is_no_address_of_a_proxy_is_one_line(here):
    for url in (
        "lab.example/x", "ftp://lab/x", "http://", "https://lab/x?y=1", "https://lab/#x",
        "https://me:pw@lab/x", "https://lab:port/x", "https://lab//x", "https://[x/y",
    ):  # fmt: skip
        said = fails_with_one(2, "ui", "--behind", url)
        assert said.startswith("--behind: must be an address as https://HOST/adder, without ? and #, got ")
        assert "pw" not in said


def test_behind_a_proxy_its_addresses_are_printed(client, here):
    shown(client, "57p")
    lines = call("ui", "--port", free_port(), "--behind", "https://lab.example/adder/").stdout.splitlines()
    assert lines[0].startswith("https://lab.example/adder/?token=")
    pages = [line for line in lines if "http" in line and "token" not in line]
    assert pages and all("https://lab.example/adder/#/" in line for line in pages)
