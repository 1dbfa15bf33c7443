"""Checkpoints as MLflow's models: of a study's best seeds, by aliases, and put there by a command."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from adders import export
from adders.proof.program import source
from adders.proof.second import program_digest
from adders.registry.models import digest_of
from model.verdict import PROVED
from search.run import verification
from search.store.verdicts import sealed
from search.study.trial import Configuration
from tests import CERTIFICATES
from tests.commands import done
from tests.homes import Recorder, empty_home, quickly, study_of
from tests.reference import client_of
from tests.verdicts import verdict_on
from trainer.checkpoints.checkpoint import Checkpoint

pytestmark = pytest.mark.usefixtures("here", "quick")


@pytest.fixture(scope="module")
def modelled(tmp_path_factory):
    """A study of two configurations, of which the larger one groks more often."""
    with quickly():
        study = Recorder(empty_home(tmp_path_factory.mktemp("modelled") / "runs"), study_of(toggle=["tie_vo"]))
        small, large = study.configurations
        study.seeds((1, 2, 3, 4), grokked=(2,))
        study.seeds((1, 2, 3, 4), large, grokked=(1, 3, 4))
        for number in (5, 6):  # what is there is not written again
            study.write_pages()
            study.seeds((number,), small)
        study.done()
    return study


def test_where_the_best_is_as_small_as_any_it_is_the_smallest_too(tmp_path):
    study = Recorder(empty_home(tmp_path / "runs"), study_of(space={"recipe.lr": {"choice": [0.01, 0.02]}}))
    first, second = (Configuration(*study.study.configuration({"recipe.lr": lr})) for lr in (0.01, 0.02))
    study.seeds((1, 2, 3, 4), first, grokked=(2,))
    study.write_pages()
    study.seeds((1, 2, 3, 4), second, grokked=(1, 3, 4))
    study.write_pages()
    study.done()
    client = study.tracker.client
    best, smallest = (client.get_model_version_by_alias("sweep", alias) for alias in ("best", "smallest"))
    assert int(best.version) == int(smallest.version) == 2


def test_the_best_verified_seeds_of_a_study_are_versions_with_aliases(modelled):
    client = modelled.tracker.client
    versions = client.search_model_versions("name = 'sweep'")
    assert sorted(v.tags["adder.params"] for v in versions) == ["57", "67"]
    best, smallest = (client.get_model_version_by_alias("sweep", alias) for alias in ("best", "smallest"))
    assert (best.tags["adder.params"], smallest.tags["adder.params"]) == ("67", "57")
    logged = client.get_logged_model(best.tags["adder.model"])
    assert {m.key: m.value for m in logged.metrics} == {"best_exact": 1.0, "adderboard": 10_010, "verified": 1.0}
    assert {m.dataset_name for m in logged.metrics} == {"AdderBoard 10,010"}
    assert logged.source_run_id == best.run_id and client.get_run(best.run_id).inputs.dataset_inputs


def test_no_version_is_the_best_where_the_configuration_that_ranks_first_has_no_verified_seed(tmp_path, monkeypatch):
    """Nothing is chosen by what is verified: the alias goes from what was the best before, and from nobody else."""
    study = Recorder(empty_home(tmp_path / "runs"), study_of(toggle=["tie_vo"]))
    small, large = study.configurations
    aliases = []
    with monkeypatch.context() as patch:
        right = {small.spec.params: 10_010, large.spec.params: 10_009}
        patch.setattr(
            verification, "verify", lambda spec, theta_P: SimpleNamespace(correct=right[spec.params], margin=None)
        )
        for configuration, grokked in ((small, (2,)), (large, (1, 3, 4))):
            study.seeds((1, 2, 3, 4), configuration, grokked=grokked)
            study.write_pages()
            aliases.append(study.tracker.client.get_registered_model("sweep").aliases.keys())
        # Of another ledger's study of this name, which has its versions in the same model.
        client = study.tracker.client
        others = client.create_model_version("sweep", "file:///elsewhere", client.create_run("0").info.run_id)
        client.set_registered_model_alias("sweep", "best", others.version)
        study.seeds((5,))
        study.write_pages()
        aliases.append(client.get_registered_model("sweep").aliases.keys())
    study.done()
    assert aliases == [{"best", "smallest"}, {"smallest"}, {"best", "smallest"}]


def test_a_checkpoint_is_registered_by_a_command_once(modelled):
    home = modelled.home.path
    done("pull", "sweep", "--best", "-o", "best", "--home", home)
    digest = digest_of(Checkpoint.load(Path("best")))
    for _ in range(2):
        said = done("register", "best", "--name", "own", "--alias", "mine", "--home", "elsewhere")
        assert "best: version 1 of own, 67 parameters, NOT verified" in said
    assert '"models:/own/1"' in said, "smallest is of verified ones"
    client = client_of("elsewhere")
    (version,) = client.search_model_versions("name = 'own'")
    assert version.tags["adder.theta"] == digest
    assert client.get_registered_model("own").aliases.keys() == {"mine"}, "smallest is of verified ones"


def test_a_study_goes_with_its_models():
    study = Recorder(empty_home("runs"), study_of())
    study.seeds((1, 2), grokked=(2,))
    study.write_pages()
    study.done()
    done("delete", "sweep", "--yes", "--home", "runs")
    client = client_of("runs")
    assert not client.search_registered_models() and not client.search_logged_models(["1"])
    assert not list(Path("runs/artifacts").glob("sweep/**/*"))


def test_a_registered_checkpoint_is_proved_if_its_folder_says_so(tmp_path):
    """A version stays proved when the same model is registered again without its proof."""
    shutil.copytree(CERTIFICATES / "7p", tmp_path / "7p")
    words = "register", tmp_path / "7p", "--name", "proved", "--home", "elsewhere"
    done(*words)
    client = client_of("elsewhere")
    assert client.get_registered_model("proved").aliases.keys() == {"smallest", "smallest-proved"}
    (version,) = client.search_model_versions("name = 'proved'")
    metrics = client.get_logged_model(version.tags["adder.model"]).metrics
    assert {m.key: m.value for m in metrics}["proved"] == 1
    larger = {"adder.params": "8", "adder.proved": "yes"}
    client.create_model_version("proved", "file:///elsewhere", version.run_id, tags=larger)
    (tmp_path / "7p/proof.json").unlink()
    done(*words)
    assert int(client.get_model_version_by_alias("proved", "smallest-proved").version) == int(version.version)


def test_a_proof_is_of_the_version_whose_program_it_names(tmp_path, monkeypatch):
    """A later program of the same checkpoint is another version."""
    shutil.copytree(CERTIFICATES / "7p", tmp_path / "7p")
    verdict, checkpoint = tmp_path / "7p/proof.json", Checkpoint.load(tmp_path / "7p")
    verdict.unlink()
    words = "register", tmp_path / "7p", "--name", "two", "--home", "elsewhere"
    done(*words)
    program = export._program
    monkeypatch.setattr(export, "_program", lambda *given, **more: program(*given, **more) + "# another\n")
    named = {"program_sha256": program_digest(source(checkpoint.spec, checkpoint.theta_P))}
    verdict.write_text(json.dumps(sealed(verdict_on(checkpoint, PROVED) | named)))
    done(*words)
    versions = client_of("elsewhere").search_model_versions("name = 'two'")
    assert {int(v.version): v.tags.get("adder.proved") for v in versions} == {1: None, 2: "yes"}
