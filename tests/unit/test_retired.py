"""What went away is ignored at its off value in records of before, and named with its commit at any other."""

import pytest
import sqlalchemy as sa

from search.run.rerun import read_request
from search.store.database import CONFIGURATIONS
from search.study.trial import Configuration
from tests import CERTIFICATES
from tests.commands import call, fails_with_one
from tests.homes import Recorder, empty_home, records_of, study_of
from trainer import Recipe
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.retired import MEASURED, RETIRED, Retired, without_retired

OFF = {name: off for name, (off, _) in RETIRED.items()}
OTHER = {name: off + 1 if type(off) in (int, float) else "odd" for name, off in OFF.items()}
LINE = r"^recipe\.{} = {}: removed; commit {} has it$"


@pytest.mark.parametrize("name", RETIRED)
def test_another_value_is_one_line_with_the_commit(name):
    with pytest.raises(Retired, match=LINE.format(name, OTHER[name], RETIRED[name][1])):
        without_retired({"lr": 0.5, **OFF, name: OTHER[name]})


def test_lists_are_off_as_tables_have_them_too():
    lists = {name: str(off) for name, off in OFF.items() if isinstance(off, list)}
    assert lists and without_retired({"lr": 0.5, **lists}) == {"lr": 0.5}


@pytest.mark.parametrize("file", sorted(CERTIFICATES.glob("*/checkpoint.json")), ids=lambda file: file.parent.name)
def test_every_certificate_of_before_loads(file):
    """With the recipe of the training that it has, if it has one."""
    checkpoint = Checkpoint.load(file.parent)
    assert Recipe.from_record(checkpoint.recipe).steps > 0


@pytest.mark.usefixtures("here", "quick")
def test_a_ledger_of_before_is_read_and_names_the_commit_where_it_must():
    recorder = Recorder(empty_home("runs"), study_of())
    recorder.seeds((1, 2), grokked=(2,))
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
    assert said == "study sweep: recipe.jiggle_every = 6000: removed; commit e95297c has it"
    shown = call("status", "sweep", "--home", folder).output.splitlines()
    assert shown[0].startswith("sweep: 2 seeds (1 grokked, ") and f"  {said}" in shown
    assert sum(line.startswith("  seed ") for line in shown) == 2


def test_a_checkpoint_of_before_is_trained_again_unless_it_needs_what_went_away(tmp_path):
    configuration = Configuration(*study_of().listed[0])
    spec, recipe = configuration.spec, configuration.recipe.as_dict() | OFF
    seed = {"init_seed": 1, "data_seed": 1}
    trained = {"step": configuration.recipe.steps, "provenance": {"trained": "from scratch"}}
    checkpoint = Checkpoint(spec, spec.initial(1), recipe, seed, **trained)
    assert read_request(checkpoint).configuration == configuration
    checkpoint.recipe["optimiser"] = "full_adam"
    with pytest.raises(ValueError, match=LINE.format("optimiser", "full_adam", MEASURED)):
        read_request(checkpoint)
