"""What went away is ignored at its off value in records of before, and named with its tag at any other."""

import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from search.run.rerun import read_request
from search.store.database import CONFIGURATIONS
from search.study.trial import TRIAL_FILE, Configuration, Trial
from tests.commands import call, fails_with_one
from tests.homes import Recorder, empty_home, quick, records_of, study_of  # noqa: F401
from trainer import Recipe
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.retired import RETIRED, Retired, without_retired

OFF = {name: off for name, (off, _) in RETIRED.items()}
OTHER = {name: off + 1 for name, off in OFF.items()}
LINE = r"^recipe\.{} = {}: removed; the tag optimisers-measured has it$"
CERTIFICATES = sorted((Path(__file__).parents[2] / "lab" / "certificates").glob("*/checkpoint.json"))


def test_nothing_retired_is_a_field():
    assert not RETIRED.keys() & Recipe.__dataclass_fields__.keys()


def test_off_values_are_ignored_and_keep_the_key():
    record = {**Recipe(lr=0.5).as_dict(), **OFF}
    assert Recipe.from_record(record) == Recipe(lr=0.5)


@pytest.mark.parametrize("name", RETIRED)
def test_another_value_is_one_line_with_the_tag(name):
    with pytest.raises(Retired, match=LINE.format(name, OTHER[name])):
        without_retired({"lr": 0.5, **OFF, name: OTHER[name]})


@pytest.mark.parametrize("name", ["full_adam", "levenberg_marquardt"])
def test_an_optimiser_that_went_away_is_one_line_with_the_tag(name):
    with pytest.raises(Retired, match=LINE.format("optimiser", name)):
        Recipe(optimiser=name)


def test_what_none_ever_had_is_still_refused():
    with pytest.raises(TypeError, match="no_such_field"):
        Recipe.from_record({"no_such_field": 1, **OFF})


@pytest.mark.parametrize("file", CERTIFICATES, ids=lambda file: file.parent.name)
def test_every_certificate_of_before_loads(file):
    """With the recipe of the training that it has, if it has one."""
    checkpoint = Checkpoint.load(file.parent)
    assert Recipe.from_record(checkpoint.recipe).steps > 0


def test_certificates_have_recipes_with_all_fields_of_before():
    recipes = [json.loads(file.read_text())["recipe"] for file in CERTIFICATES]
    assert sum(recipe.keys() >= RETIRED.keys() for recipe in recipes) >= 10


def test_a_trial_of_before_is_read_as_it_was(tmp_path):
    study = study_of()
    configuration = Configuration(*study.listed[0])
    trial = Trial(study.name, ((configuration, study.first_seeds[0]),), 1, study.resources, study.stop)
    trial.write(tmp_path)
    about = json.loads((tmp_path / TRIAL_FILE).read_text())
    about["recipes"][configuration.key] |= OFF
    (tmp_path / TRIAL_FILE).write_text(json.dumps(about))
    assert Trial.read(tmp_path) == trial
    about["recipes"][configuration.key] |= {"jiggle_every": 6_000}
    (tmp_path / TRIAL_FILE).write_text(json.dumps(about))
    with pytest.raises(Retired, match=LINE.format("jiggle_every", 6_000)):
        Trial.read(tmp_path)


@pytest.mark.usefixtures("here", "quick")
def test_a_ledger_of_before_is_read_and_names_the_tag_where_it_must():
    recorder = Recorder(empty_home("runs"), study_of())
    recorder.trial((1, 2), grokked=(2,))
    folder, configuration = recorder.done(), recorder.configuration

    def rewrite(**fields):
        with records_of(folder).database.begin() as db:
            recipe = configuration.recipe.as_dict() | OFF | fields
            db.execute(sa.update(CONFIGURATIONS).values(recipe=recipe))

    rewrite()
    assert list(records_of(folder).list_configurations().values()) == [configuration]
    before = call("best", "--json", "--home", folder).output
    assert configuration.key in before and "jiggle" not in before
    rewrite(jiggle_every=6_000)
    said = fails_with_one(2, "best", "--home", folder)
    assert said == "study sweep: recipe.jiggle_every = 6000: removed; the tag optimisers-measured has it"


def test_a_checkpoint_of_before_is_trained_again_unless_it_needs_what_went_away(tmp_path):
    configuration = Configuration(*study_of().listed[0])
    spec, recipe = configuration.spec, configuration.recipe.as_dict() | OFF
    seed = {"init_seed": 1, "data_seed": 1}
    checkpoint = Checkpoint(
        spec,
        spec.initial(1),
        recipe,
        seed,
        configuration.recipe.steps,
        provenance={"trained": "from scratch"},
    )
    assert read_request(checkpoint).trial.configurations == (configuration,)
    checkpoint.recipe["optimiser"] = "full_adam"
    with pytest.raises(ValueError, match=LINE.format("optimiser", "full_adam")):
        read_request(checkpoint)
