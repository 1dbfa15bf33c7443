"""A study's pictures in MLflow, and the checkpoint of a configuration that is named."""

import pytest

from search.analysis.frames import records
from search.errors import UserError
from tests.commands import done, fails_with_one
from tests.homes import Recorder, empty_home, recorded, study_of

pytestmark = pytest.mark.usefixtures("here")


def test_the_studys_pictures_are_in_mlflow():
    study = Recorder(empty_home("home"), study_of())
    study.seeds((1, 2))
    study.write_pages()
    study.done()
    client, own = study.tracker.client, study.tracker.study_run().id
    names = {item.path for item in client.list_artifacts(own)}
    assert "pictures" in names and not any("table" in name for name in names), "nothing was trained with and without"
    pictures = {item.path for item in client.list_artifacts(own, "pictures")}
    assert {"pictures/grokking-curves.png", "pictures/time-to-grok.png"} <= pictures


@pytest.mark.usefixtures("quick")
def test_pull_by_configuration():
    recorded("home", (1, 2))
    key = records("sweep", "configurations", home="home")["configuration"][0]
    words = ("pull", "sweep", "--home", "home", "-o", "c", "--configuration")
    done(*words, key[:4])
    assert f"has no configuration 'zzz'; valid: {key}" in fails_with_one(2, *words, "zzz")
    with pytest.raises(UserError, match=r"of: unknown 'seed'; did you mean seeds\?"):
        records("sweep", "seed", home="home")
