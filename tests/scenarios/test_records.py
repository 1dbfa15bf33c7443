"""Records as data frames, and the commands that read them, on a study that has really run."""

import json
from unittest.mock import Mock

import pytest
from mlflow import MlflowClient

from search.analysis.frames import records
from search.errors import Failure
from search.explain.recorded import Recorded
from search.tracking.tracking import STUDY_TAG
from tests.commands import call, fails_with_one

pytestmark = [pytest.mark.end_to_end, pytest.mark.usefixtures("here")]


def test_a_row_a_seed(smoke):
    seeds = records("smoke", home=smoke.home)
    assert seeds["init_seed"].tolist() == [777, 778, 779, 780] == seeds["data_seed"].tolist()
    assert set(seeds["outcome"]) == {"failed"} and seeds["steps"].tolist() == seeds["budget"].tolist() == [60] * 4
    assert seeds["grok_step"].isna().all() and not seeds["confirmation"].any()
    assert {"threads", "slots", "torch", "cpu", "code"} <= set(seeds["environment"][0])


def test_unknown_kinds_of_rows_are_refused(smoke):
    with pytest.raises(ValueError, match="of must be one of seeds, configurations, curves, got 'seed'"):
        records("smoke", "seed", home=smoke.home)


def test_the_studys_pictures_are_in_mlflow(smoke):
    client = MlflowClient(tracking_uri=f"sqlite:///{smoke.home / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("smoke").experiment_id
    (own,) = client.search_runs([experiment], f"tags.`{STUDY_TAG}` = 'yes'")
    assert own.info.run_name == "study smoke" and own.info.status == "FINISHED"
    names = {item.path for item in client.list_artifacts(own.info.run_id)}
    assert names == {"study.json", "pictures"}, "no table: nothing was trained with and without a constraint"
    pictures = {item.path for item in client.list_artifacts(own.info.run_id, "pictures")}
    assert {"pictures/grokking-curves.png", "pictures/time-to-grok.png"} <= pictures


def test_pull_by_configuration(smoke, tmp_path):
    key = records("smoke", "configurations", home=smoke.home)["configuration"][0]
    words = ("pull", "smoke", "--home", smoke.home, "-o", tmp_path / "c", "--configuration")
    assert call(*words, key[:4]).exit_code == 0
    assert f"has no configuration 'zzz'; valid: {key}" in fails_with_one(2, *words, "zzz")


def test_a_checkpoints_page_has_its_curve(smoke, tmp_path, monkeypatch):
    home, folder, page = ("--home", smoke.home), tmp_path / "adder", tmp_path / "page.html"
    assert call("pull", "smoke", "--seed", "778", "-o", folder, *home).exit_code == 0
    assert call("explain", folder, "-o", page, *home).exit_code == 0
    training = json.loads(page.read_text().split('id="model">')[1].split("</script>")[0])["nets"][0]["training"]
    curve = records("smoke", "curves", home=smoke.home).query("init_seed == 778")
    assert training["curve"] == {"steps": [20, 40, 60], "exact": curve["exact"].round(4).tolist()}
    assert len(training["curves"]) == 3 and "0 of 4 seeds" in training["words"]
    with monkeypatch.context() as patch:
        patch.setattr(Recorded, "training", Mock(side_effect=Failure("no curve")))
        without = call("explain", folder, "-o", tmp_path / "without.html", *home)
    assert without.exit_code == 0 and "its records could not be read" in without.output
