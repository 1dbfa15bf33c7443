"""What is registered with a proof in its folder (tests/scenarios/test_models.py)."""

import shutil

import pytest

from tests import CERTIFICATES
from tests.commands import call
from tests.reference import client_of


@pytest.mark.usefixtures("here", "quick")
def test_a_registered_checkpoint_is_proved_if_its_folder_says_so(tmp_path):
    shutil.copytree(CERTIFICATES / "7p", tmp_path / "7p")
    assert call("register", tmp_path / "7p", "--name", "proved", "--home", "elsewhere").exit_code == 0
    client = client_of("elsewhere")
    assert client.get_registered_model("proved").aliases.keys() == {"smallest", "smallest-proved"}
    (version,) = client.search_model_versions("name = 'proved'")
    metrics = client.get_logged_model(version.tags["adder.model"]).metrics
    assert {m.key: m.value for m in metrics}["proved"] == 1
