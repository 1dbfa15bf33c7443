"""MLflow shows seeds while they train: what it has then it has in the end, and `sync` writes the same again."""

import shutil
from collections import Counter

import pytest

import search
from search.store.home import Home
from tests.commands import done
from tests.homes import forget_places, quickly, records_of
from tests.leases import leave_dead
from tests.scenarios.studies import let_seed_7_grok
from tests.scenarios.test_cut_off import facts
from tracking import projection
from tracking.projection import Projection
from tracking.store import OUTCOME_TAG, connect
from tracking.views import addresses
from trainer import MEASURES, Seed
from trainer.bank import saved
from trainer.outcomes import PROBE

pytestmark = pytest.mark.usefixtures("few_selection_problems", "quick", "here", "groks")
STEPS, EVERY = 48, 4
STUDY = {
    "name": "live",
    "model": "57p",
    "recipe": {"steps": STEPS, "eval_every": EVERY, "hold": 12},
    "seeds": {"first": 5, "count": 6},
    "resources": {"slots": 4, "save_every": 2},
}
UNTIL = STUDY | {"until": {"grokked": 1, "max_seeds": 6}}


def shown(home):
    """What MLflow has of runs of seeds and configurations: by name status, tags, parameters, curves."""
    forget_places()
    found = {}
    for name, (status, tags, params, _, steps, _) in facts(home, "live")[0].items():
        curves = {m: points for m, points in steps.items() if m in MEASURES or m.startswith(("first_seeds.", PROBE))}
        found[name] = (status, tags, params, curves)
    del found["study live"]
    return found


def reached(runs):
    """Evaluations of seed 5 in its curve. runs: as shown."""
    *_, curves = runs.get("seed 5", ({},))
    return len(curves.get("exact", ()))


def trained(study, folder):
    """Run a study. Returns its home, and what it was after each of the driver's looks: what a killed driver leaves,
    with what MLflow has there.
    """
    homes, whole = [], Projection.note_curves

    def note_curves(self, training):
        whole(self, training)
        self.outbox.drain(60, 60)
        if self.tracker.runs and len(homes) < 40:
            homes.append(Home(shutil.copytree(self.records.home.path, folder / f"copy-{len(homes)}")))

    with quickly(), pytest.MonkeyPatch.context() as patch:
        let_seed_7_grok(patch)
        patch.setattr(projection, "LIVE_S", 0.0)
        leave_dead(patch)
        patch.setattr(Projection, "note_curves", note_curves)
        search.run(study, folder / "home")
    return Home(folder / "home"), [(copy, shown(copy)) for copy in homes]


@pytest.fixture(scope="module")
def lived(few_selection_problems, tmp_path_factory):
    """The study, run once for all who look at it."""
    return trained(STUDY, tmp_path_factory.mktemp("lived"))


def rebuilt(home):
    """What `sync` writes of a home's records into an empty store."""
    copy = Home(shutil.copytree(home.path, home.path.with_name(f"{home.path.name}-again")))
    copy.mlflow_db.unlink()
    shutil.rmtree(copy.artifacts)
    done("sync", "live", "--home", copy.path)
    return shown(copy)


@pytest.mark.parametrize(
    "study", [pytest.param(STUDY, id="all"), pytest.param(UNTIL, id="until", marks=pytest.mark.full)]
)
def test_curves_grow_while_seeds_train_and_are_what_sync_writes(study, lived, here):
    home, seen = lived if study is STUDY else trained(study, here)
    whole = shown(home)
    for _, before in seen:
        for name, (_, _, params, steps) in before.items():
            assert params.items() <= whole[name][2].items()
            for metric, points in steps.items():
                assert set(points) <= set(whole[name][3][metric]), f"{name}: {metric} was to be written otherwise"
    assert len({reached(before) for _, before in seen}) > (3 if study is STUDY else 1), (
        "its curve grew while it trained"
    )
    for name, (*_, steps) in whole.items():
        assert all(max(Counter(step for step, _ in points).values()) == 1 for points in steps.values()), name
    assert rebuilt(home) == whole
    assert whole["seed 7"][1][OUTCOME_TAG] == "grokked" and {run[0] for run in whole.values()} == {"FINISHED"}


def test_a_seed_that_trains_is_running_and_one_that_has_ended_has_its_outcome(lived):
    runs = [{name: run for name, run in before.items() if name != "57p"} for _, before in lived[1]]
    outcomes = [{status: tags[OUTCOME_TAG] for status, tags, *_ in some.values()} for some in runs]
    assert {"RUNNING": "running"} in outcomes and {"RUNNING": "running", "FINISHED": "grokked"} in outcomes
    first, _ = lived[1][0]
    tags = connect(first).get_experiment_by_name("live").tags
    assert "seeds" in addresses("", "1", tags), "`ui` leads to their curves from the start"


def test_what_a_killed_driver_leaves_is_gone_on_with_and_rebuilt_alike(lived):
    home, seen = lived
    copies = [copy for copy, before in seen if reached(before)][1:9:3]
    assert len(copies) == 3
    for copy in copies:
        search.run(STUDY, copy.path)
        assert shown(copy) == shown(home)


def test_a_best_seed_that_is_overtaken_loses_its_run(here, monkeypatch):
    """Of seeds beyond the first ones the best has a run, and only the best."""
    monkeypatch.setattr(search.Study, "watched", property(lambda study: [Seed.of(5), Seed.of(6)]))
    home, seen = trained(STUDY | {"seeds": [5, 6, 8, 9, 7]}, here)
    whole = shown(home)
    assert {"seed 8", "seed 9"} & {name for _, before in seen for name in before}
    assert whole.keys() == {"57p", "seed 5", "seed 6", "seed 7"} and rebuilt(home) == whole


def test_a_state_that_is_damaged_or_of_something_else_is_no_curve(lived):
    records = records_of(lived[1][5][0], "live")
    (configuration,) = records.list_configurations().values()
    result = records.results_so_far(configuration, {Seed.of(5)})[Seed.of(5)]
    assert 0 < result.steps < STEPS and len(result.curve_EM) == result.steps // EVERY
    assert (result.curve_EM[:, 0] >= 0).all() and result.curve_EM.isfinite().all()
    rest = b"x" * 5_000
    for damaged in (b"", b"x" * 8, saved.digest(b""), saved.digest(rest) + rest, rest):
        assert saved.result_of(configuration.pair(Seed.of(5)), configuration.trained, damaged) is None
