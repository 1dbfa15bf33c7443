"""What MLflow's page of a configuration's run says: source, user, description, data, and few parameters."""

import getpass
import json
import threading
import time

import pytest
from mlflow.artifacts import load_dict

from reports.markup import escape
from search.study.trial import Configuration
from tests.homes import Recorder, drive, empty_home, quickly, study_of
from tests.reference import client_of, runs_of
from tracking.projection import describe_study
from tracking.shown import describe_configuration, main_params
from tracking.store import STUDY_TAG
from tracking.tracker import Tracker
from tracking.views import PAGE_TAG, addresses

SEARCH = {
    "space": {"recipe.lr": {"float": [0.01, 0.02]}, "model.tie_vo": {"choice": [True, False]}},
    "recipe": {"steps": 3_000, "eval_every": 1_000, "warmup": 10, "carry_mix": 0.5},
}


PICTURE = "sum ![x](http://127.0.0.1:9777/b.png)"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The runs of a search with one configuration, in two drivers; and the configuration."""
    with quickly():
        study = Recorder(empty_home(tmp_path_factory.mktemp("pages")), study_of())
        searched = study_of(name="searched", **SEARCH)
        study.tracker = Tracker(study.tracker.unfenced, study.home, searched)
        for _ in range(2):
            run = study.tracker.run_of(study.configuration).id
            study.tracker = Tracker(study.tracker.unfenced, study.home, searched)
        yield study.tracker.client.get_run(run), study.configuration
        study.done()


def test_parameters_are_what_is_searched_and_what_matters(pages):
    run, configuration = pages
    params = run.data.params
    assert {"preset", "params", "recipe.lr", "model.tie_vo", "recipe.steps"} <= params.keys() and len(params) <= 16
    carries = {name: params[f"recipe.{name}"] for name in ("weight_decay", "carry_mix", "fade_end")}
    assert carries == {"weight_decay": "0.01", "carry_mix": "0.8", "fade_end": "200"}
    assert params["recipe.lr"] == str(configuration.recipe.lr) and "recipe.beta1" not in params
    everything = load_dict(f"{run.info.artifact_uri}/configuration.json")
    assert everything == json.loads(json.dumps(configuration.as_params())) and len(everything) > 80


def test_a_page_says_who_what_and_on_which_data(pages):
    run, configuration = pages
    tags = run.data.tags
    assert tags["mlflow.user"] == getpass.getuser()
    assert (tags["mlflow.source.name"], tags["mlflow.source.type"]) == ("adder-search run searched", "LOCAL")
    for words in (f"adder-search pull searched --configuration {configuration.key}", "in `configuration.json`"):
        assert words in tags["mlflow.note.content"]
    (data,) = run.inputs.dataset_inputs
    assert data.dataset.name == "additions by step" and json.loads(data.dataset.source)["carry_mix"] == 0.8
    assert [(t.key, t.value) for t in data.tags] == [("mlflow.data.context", "training")]


def test_a_name_that_a_file_gives_is_text():
    about = describe_configuration("sweep", PICTURE, Configuration(*study_of().listed[0]))
    assert about["mlflow.note.content"].startswith(f"**{escape(PICTURE)}**, ")


def test_where_carry_shares_say_it_the_share_and_its_fade_are_no_parameters():
    (listed,) = study_of(recipe={"carry_shares": [[0, 0.5]]}).listed
    params = main_params(Configuration(*listed), ())
    assert "recipe.carry_shares" in params and not {"recipe.carry_mix", "recipe.fade_end"} & params.keys()


def test_a_study_that_stops_has_curves_and_a_page_of_its_own_that_ui_leads_to(tmp_path):
    with quickly():
        study = Recorder(empty_home(tmp_path), study_of(until={"grokked": 1, "max_seeds": 8}, about=PICTURE))
        study.seeds([1])
        client, run = study.tracker.client, study.tracker.run_of(study.configuration).id
        assert not client.get_metric_history(run, "first_seeds.best_exact"), "the first seeds have not ended"
        study.seeds([2, 3], grokked=[3])
        assert len(client.get_metric_history(run, "first_seeds.best_exact")) == 3, "others of the first never will"
        study.write_pages()
        page, experiment = study.tracker.study_run().id, study.tracker.experiment
        describe_study(study.tracker)
        study.done()
    whole, about = client.get_run(page), client.get_experiment(experiment).tags["mlflow.note.content"]
    assert whole.data.metrics == {"configurations": 1, "seeds": 3, "runs": 3, "grokked": 1}
    assert whole.data.tags["mlflow.note.content"].startswith(f"{escape(PICTURE)}\n\n    adder-search report sweep")
    assert whole.info.end_time >= client.get_run(run).info.end_time > whole.info.start_time
    assert about == escape(PICTURE), "a list shows it as it is"
    files = addresses("http://host/", experiment, client.get_experiment(experiment).tags)["files"]
    assert list(addresses("http://host/", "1", {PAGE_TAG: "r"})) == ["runs", "files"], "before its views are written"
    assert files == f"http://host/#/experiments/{experiment}/runs/{page}"


def test_a_run_measures_its_machine_where_mlflows_variable_asks_for_it(tmp_path, monkeypatch):
    study = study_of()
    monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true")
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.1")
    with quickly():
        drive(home := empty_home(tmp_path), study, seen=lambda driver: time.sleep(0.25))
    client = client_of(home.path)
    (run,) = (r for r in runs_of(client, study.name) if STUDY_TAG in r.data.tags)
    assert run.data.metrics["system/cpu_utilization_percentage"] >= 0
    assert run.info.status == "FINISHED"
    assert "SystemMetricsMonitor" not in {thread.name for thread in threading.enumerate()}
