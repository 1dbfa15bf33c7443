"""`ui` in a real browser: it serves, its view opens on the rates, a chart is drawn; and it ends with all of it."""

import os
import signal
import time
from http.client import HTTPConnection
from pathlib import Path

import pytest
from mlflow import MlflowClient

from search.study.trial import Configuration
from tests.browser import chromium, entrance_of, page_of, served, started, visible
from tests.homes import Recorder, empty_home, quickly, study_of
from tests.processes import is_healthy, listening, wait_until
from tests.second_user import as_second_user, fetch
from tracking.views import write_views

pytestmark = pytest.mark.end_to_end
SEEDS, GROKKED = 4, (0, 1, 3)
"""Seeds of each configuration, and the number that grokked."""
STUDY = f"""
name: recipes
model: 57p
recipe: {{steps: 10000, eval_every: 500}}
space:
  recipe.lr: {{float: [0.005, 0.08], log: true}}
seeds: {{first: 770, count: {SEEDS}}}
"""
CURVES = ".js-plotly-plot .scatterlayer path.js-line"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a home that has the study and its views."""
    folder, first = tmp_path_factory.mktemp("ui"), 770
    with quickly():
        study = Recorder(empty_home(folder / "adder-runs"), study_of(STUDY))
        for number, grokked in enumerate(GROKKED):
            values = {"recipe.lr": round(0.01 * 1.3**number, 4)}
            configuration = Configuration(*study.study.configuration(values))
            study.seeds(range(first, first + SEEDS), configuration, grokked=range(first, first + grokked))
        write_views(study.tracker.client, study.study, study.tracker.experiment)
        study.done()
    return folder


@pytest.fixture(scope="module")
def ui(folder):
    """The served UI of it."""
    with served(folder) as ui:
        yield ui


@pytest.mark.full
def test_the_views_open_on_the_rates_and_on_drawn_charts(ui, tmp_path):
    with chromium(tmp_path) as browser:
        browser.get(entrance_of(ui))
        browser.get(page_of(ui, "recipes", "table"))
        visible(browser, f"{len(GROKKED)} matching runs", "final.grok_rate", "recipe.lr")

        def rates():
            cells = browser.find_elements("css selector", '[col-id="metrics.`final.grok_rate`"]')
            texts = [c.text for c in sorted(cells, key=lambda c: c.location["y"])]
            return texts[1:] if all(texts) and len(texts) > len(GROKKED) else []

        wait_until(rates, "the column of rates")
        assert [float(rate) for rate in rates()] == sorted((g / SEEDS for g in GROKKED), reverse=True)

        browser.get(page_of(ui, "recipes", "charts"))
        visible(browser, "What was searched", "Parallel Coordinates", "final.grok_rate", "best_exact")
        wait_until(lambda: browser.find_elements("css selector", CURVES), "a curve")
        wait_until(lambda: browser.find_elements("css selector", ".parcoords svg .axis"), "the axes")

        browser.get(page_of(ui, "recipes", "seeds"))
        visible(browser, "Seeds over steps", "exact", "token", "loss", "seed 770")
        wait_until(lambda: len(browser.find_elements("css selector", CURVES)) >= SEEDS, "curves of seeds")


@pytest.mark.full
def test_what_a_strangers_note_asks_of_another_port_never_gets_there_nor_does_the_cookie(ui, folder, tmp_path):
    client = MlflowClient(f"sqlite:///{folder / 'adder-runs/mlflow.db'}")
    experiment = client.get_experiment_by_name("recipes").experiment_id
    run = client.search_runs([experiment])[0].info.run_id
    asked = []

    def hear(request):
        asked.append({**request.headers, "path": request.path})
        return 200

    with listening(hear) as other, chromium(tmp_path) as browser:
        note = f"# Hello ![x]({other}/markdown.png) <img src='{other}/html.png' onerror='fetch(`{other}/script`)'>"
        client.set_tag(run, "mlflow.note.content", note)
        browser.get(entrance_of(ui))
        for page in (f"{ui.address}/#/experiments/{experiment}/runs/{run}", page_of(ui, "recipes", "table")):
            browser.get("about:blank")
            browser.get(page)
            visible(browser, "Hello" if run in page else "matching runs")
        assert asked == []
        browser.get(f"{other}/visited")
        wait_until(lambda: any(a["path"] == "/visited" for a in asked), "the visit")
        assert not any("cookie" in map(str.lower, a) for a in asked)


def test_nobody_without_the_token_is_let_in_and_who_has_it_reads_the_homes_files_alone(ui, folder):
    home = folder / "adder-runs"
    api, token = f"{ui.address}/api/2.0/mlflow", ui.printed().split("token=")[1].split("#")[0]
    secret, outside = home.parent / "secret", home.parent / "outside"
    secret.write_text("mine")
    outside.mkdir()
    client = MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    elsewhere = client.create_experiment("elsewhere", artifact_location=outside.as_uri())
    run = client.create_run(elsewhere).info.run_id
    (outside / run).mkdir()
    (outside / run / "artifacts").symlink_to(home.parent)  # all of the user's, through his experiment
    inside = next(r for r in client.search_runs(["1"]) if r.info.artifact_uri.startswith(home.as_uri()))
    place = Path(inside.info.artifact_uri.removeprefix("file://"))
    place.mkdir(parents=True, exist_ok=True)
    (place / "link").symlink_to(secret)
    (place / "file").write_text("an artifact")
    reads = [f"{ui.address}/get-artifact?run_id={r}&path={p}"
             for r, p in ((run, "secret"), (inside.info.run_id, "link"), (inside.info.run_id, "file"))]  # fmt: skip
    writes = [[f"{api}/experiments/create", {"name": name}, {}] for name in ("new", "newer")]
    bearer = {"Authorization": f"Bearer {token}"}
    strangers = [[f"{ui.address}/health", None, {}], [ui.address, None, {}], *([r, None, {}] for r in reads),
                 writes[0], [f"{ui.address}/?token=guess", None, {}]]  # fmt: skip
    asking = as_second_user if os.geteuid() == 0 else lambda function, values: fetch(values)
    assert asking("fetch", strangers) == [200, *[401] * 6]
    with_token = [[r, None, bearer] for r in reads] + [[writes[1][0], writes[1][1], bearer]]
    refused, link, file, created = fetch(with_token)
    assert (refused, file, created) == (403, 200, 200) and link >= 400
    assert client.get_experiment_by_name("new") is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_TOKEN", token)
        assert MlflowClient(ui.address).get_experiment_by_name("newer") is not None


@pytest.mark.full
def test_a_proxys_host_and_path_are_its_own(folder):
    """As nginx or a hub passes requests on: with the host's name, and with or without the path."""
    with started(folder, "--behind", "http://lab.example/lab/adder") as (command, address):
        command.wait_for(lambda: is_healthy(address), "health")
        start, query = command.printed().split("#")[0].split("?")
        assert start == "http://lab.example/lab/adder/"

        def asked(path, method="GET", host="lab.example", **headers):
            connection = HTTPConnection(address.removeprefix("http://"))
            connection.request(method, path, "{}" if method == "POST" else None, {"Host": host, **headers})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()

        status, headers, _ = asked(f"/?{query}")
        place, cookie = headers["location"], headers["set-cookie"].partition(";")[0]
        assert status == 302 and place.startswith("/lab/adder/")
        experiments = "ajax-api/2.0/mlflow/experiments/get?experiment_id=1"
        for path in (place, place.removeprefix("/lab/adder")):
            assert asked(path, Cookie=cookie)[0] == 200
            assert asked(f"{path}static-files/favicon.ico", Cookie=cookie)[0] == 200
            assert b"recipes" in asked(path + experiments, Cookie=cookie)[2]
            create = asked(f"{path}ajax-api/2.0/mlflow/experiments/create", "POST", Cookie=cookie,
                           Origin="http://lab.example", **{"Content-Type": "application/json"})  # fmt: skip
            assert create[0] == 400 and b"name" in create[2]  # it was asked, and lacks a name
        assert asked(place, host="evil.example", Cookie=cookie)[0] == 403


@pytest.mark.full
@pytest.mark.parametrize(
    ("number", "is_up"),
    [(signal.SIGTERM, False), (signal.SIGKILL, True), (signal.SIGINT, True)],
)
def test_it_ends_with_all_that_it_started(folder, number, is_up):
    """Also while it is coming up; a SIGTERM to one that is up ends every test here (`served`)."""
    with started(folder) as (command, address):
        command.wait_for(lambda: address in command.printed() and (is_healthy(address) or not is_up), "its address")
        time.sleep(0 if is_up else 1)  # it loads MLflow's server
        os.kill(command.process.pid, number)
        said = command.wait(10)
        assert said.code == (0 if number == signal.SIGINT else -number) and said.err == ""
        assert command.gone(10), "it left processes behind"
