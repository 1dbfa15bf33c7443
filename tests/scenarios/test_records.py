"""Records and pictures of a study that has really run."""

import pytest

from search.analysis.frames import records
from search.errors import UserError
from tests.commands import done, fails_with_one
from tests.reference import client_of, runs_of
from tracking.store import STUDY_TAG

pytestmark = [pytest.mark.end_to_end, pytest.mark.usefixtures("here")]


def test_the_studys_pictures_are_in_mlflow(smoke):
    client = client_of(smoke.home)
    (own,) = (run for run in runs_of(client, "smoke") if STUDY_TAG in run.data.tags)
    assert own.info.run_name == "study smoke" and own.info.status == "FINISHED"
    names = {item.path for item in client.list_artifacts(own.info.run_id)}
    assert names == {"study.json", "pictures"}, "no table: nothing was trained with and without a constraint"
    pictures = {item.path for item in client.list_artifacts(own.info.run_id, "pictures")}
    assert {"pictures/grokking-curves.png", "pictures/time-to-grok.png"} <= pictures


def test_pull_by_configuration(smoke, tmp_path):
    key = records("smoke", "configurations", home=smoke.home)["configuration"][0]
    words = ("pull", "smoke", "--home", smoke.home, "-o", tmp_path / "c", "--configuration")
    done(*words, key[:4])
    assert f"has no configuration 'zzz'; valid: {key}" in fails_with_one(2, *words, "zzz")
    with pytest.raises(UserError, match=r"of: unknown 'seed'; did you mean seeds\?"):
        records("smoke", "seed", home=smoke.home)
