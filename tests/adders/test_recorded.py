"""The page of a seed that a home has: its curve among others', and where MLflow has the page."""

import json
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from mlflow import MlflowClient

from adders.explain import recorded
from adders.explain.recorded import Recorded
from search.analysis.frames import records
from search.errors import Failure
from search.store.home import Home
from search.tracking.tracking import KEY_TAG, PARENT_TAG, SEED_TAG
from tests.commands import call
from trainer import Seed


@pytest.mark.end_to_end
@pytest.mark.usefixtures("here")
def test_a_checkpoints_page_has_its_curve_and_lies_beside_it_in_mlflow(smoke, tmp_path, monkeypatch):
    key = records("smoke", "configurations", home=smoke.home)["configuration"][0]
    home, folder, page = ("--home", smoke.home), tmp_path / "adder", tmp_path / "page.html"
    assert call("pull", "smoke", "--seed", "778", "-o", folder, *home).exit_code == 0
    written = call("explain", folder, "-o", page, *home)
    assert written.exit_code == 0 and "MLflow" not in written.output, "no run of its own: it did not grok"
    training = json.loads(page.read_text().split('id="model">')[1].split("</script>")[0])["nets"][0]["training"]
    curve = records("smoke", "curves", home=smoke.home).query("init_seed == 778")
    assert training["curve"] == {"steps": [20, 40, 60], "exact": curve["exact"].round(4).tolist()}
    assert len(training["curves"]) == 3 and "0 of 4 seeds" in training["words"]

    client = MlflowClient(tracking_uri=f"sqlite:///{smoke.home / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("smoke").experiment_id
    (parent,) = client.search_runs([experiment], f"tags.`{KEY_TAG}` = '{key}'")
    tags = {PARENT_TAG: parent.info.run_id, SEED_TAG: "778"}
    run = client.create_run(experiment, tags=tags).info.run_id
    assert "beside the checkpoint of seed 778" in call("explain", folder, "-o", page, *home).output
    (logged,) = client.list_artifacts(run)
    with monkeypatch.context() as patch:
        patch.setattr(Recorded, "training", Mock(side_effect=Failure("no curve")))
        without = call("explain", folder, "-o", tmp_path / "without.html", *home)
    assert without.exit_code == 0 and "its records could not be read" in without.output
    client.delete_run(run)
    assert logged.path == "explain.html" and logged.file_size == len(page.read_bytes())


def test_a_page_is_logged_where_its_store_has_artifacts_alone(monkeypatch, tmp_path):
    logged = []
    run = SimpleNamespace(info=SimpleNamespace(run_id="r", experiment_id="1", artifact_uri="file:///etc"))
    client = SimpleNamespace(tracking_uri="http://server", get_run=lambda _: run, search_runs=lambda *_: [run],
               log_text=lambda *given: logged.append(given))  # fmt: skip
    monkeypatch.setattr(recorded, "connect", lambda _: client)
    records = SimpleNamespace(home=Home(tmp_path), list_runs=lambda: {"key": ("", "parent")})
    of_seed = recorded.Recorded(records, "key", Seed.of(1), [])
    with pytest.raises(Failure, match=r"^run r "):
        of_seed.log("page")
    assert not logged
    run.info.artifact_uri = "mlflow-artifacts:/1/r"
    assert of_seed.log("page") and logged == [("r", "page", "explain.html")]
    client.log_text = lambda *_: 1 / 0
    with pytest.raises(Failure, match=r"^MLflow store http://server: "):
        of_seed.log("page")
