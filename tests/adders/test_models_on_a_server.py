"""Models on an MLflow server with authentication: registered, predicted with, and written once the server is back."""

import shutil

import pytest
from mlflow.exceptions import MlflowException

from tests import CERTIFICATES
from tests.commands import call, fails_with_one, python
from tests.homes import Recorder, empty_home, study_of
from tests.reference import environment
from tests.services import mlflow_server

pytestmark = pytest.mark.full
PREDICT = """
import sys, warnings
warnings.simplefilter("ignore")
import mlflow, pandas as pd
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pyfunc.load_model(sys.argv[2])
sums = model.predict(pd.DataFrame({"a": [3, 9_999_999_999], "b": [4, 1]}))["sum"]
assert not {"search", "trainer", "model"} & set(sys.modules), "it needs torch alone"
print(*map(int, sums))
"""


@pytest.fixture
def server(here):
    with mlflow_server() as started, environment(started.environment()):
        yield started


def predict(server, name):
    return python("-c", PREDICT, server.uri, name, cwd="/").split()


def test_a_checkpoint_is_registered_on_a_server_and_predicts(server, here):
    shutil.copytree(CERTIFICATES / "7p", here / "7p")
    for _ in range(2):
        done = call("register", "7p", "--name", "adders")
        assert done.exit_code == 0 and "version 1 of adders" in done.stdout, done.output
    assert predict(server, "models:/adders@smallest-proved") == ["7", str(10**10)]
    assert server.password not in done.output
    with environment({"MLFLOW_TRACKING_PASSWORD": "wrong"}):
        assert fails_with_one(1, "register", "7p", "--name", "adders")


def test_a_study_whose_server_was_away_has_its_models_when_it_is_back(server, here, quick):
    study = Recorder(empty_home("runs"), study_of(name="away"))
    study.seeds((1, 2), grokked=(2,))
    server.stop()
    with environment({"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}), pytest.raises(MlflowException):
        study.write_pages()
    server.start()
    for _ in range(2):
        study.write_pages()
    study.done()
    (version,) = study.tracker.client.search_model_versions("name = 'away'")
    assert version.tags["adder.params"] == "57" and len(predict(server, "models:/away@best")) == 2
