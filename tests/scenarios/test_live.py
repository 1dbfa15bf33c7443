"""MLflow shows seeds while they train: what it has then it has in the end, and `sync` writes the same again."""

import shutil
from collections import Counter

import pytest

import search
from search.run import projection
from search.run.projection import Projection
from search.store import lease as hold
from search.store import ledger as ledger_module
from search.store.home import Home
from search.tracking.tracking import KEY_TAG, OUTCOME_TAG, SEED_TAG, connect
from tests.browser import chromium, entrance_of, page_of, served, visible
from tests.commands import done
from tests.homes import forget_places, records_of
from tests.leases import dead_owner
from tests.processes import wait_until
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
    """What MLflow has of runs of seeds and configurations, without ids and times; each value of each step."""
    client = connect(home)
    found = {}
    for run in client.search_runs(["1"]):
        tags = {name: run.data.tags[name] for name in (OUTCOME_TAG, SEED_TAG, KEY_TAG) if name in run.data.tags}
        if not tags.keys() & {SEED_TAG, KEY_TAG}:
            continue
        over_steps = [name for name in run.data.metrics if name in MEASURES or name.startswith(("first_seeds.", PROBE))]
        steps = {name: sorted((m.step, m.value) for m in client.get_metric_history(run.info.run_id, name))
                 for name in over_steps}  # fmt: skip
        assert run.info.run_name not in found, "a seed has one run"
        found[run.info.run_name] = (run.info.status, tags, run.data.params, steps)
    return found


def reached(found, name, metric="exact"):
    """Steps of a run's metric."""
    return [step for step, _ in found[name][3].get(metric, ())] if name in found else []


@pytest.fixture
def seen(monkeypatch, here):
    """What MLflow had after each of the driver's looks, and a copy of the home then: what a killed driver leaves."""
    homes, whole = [], Projection.note_curves

    def note_curves(self, training):
        whole(self, training)
        self.outbox.drain(60, 60)
        if self.tracker.runs and len(homes) < 40:
            homes.append(Home(shutil.copytree(self.records.home.path, here / f"copy-{len(homes)}")))

    monkeypatch.setattr(projection, "LIVE_S", 0.0)
    monkeypatch.setattr(hold, "RENEW_S", 60.0)
    monkeypatch.setattr(ledger_module, "driver_name", dead_owner)  # the homes' driver is gone, wherever they lie
    monkeypatch.setattr(Projection, "note_curves", note_curves)
    return homes


def rebuilt(home):
    """What `sync` writes of a home's records into an empty store."""
    forget_places()
    copy = Home(shutil.copytree(home.path, home.path.with_name(f"{home.path.name}-again")))
    copy.mlflow_db.unlink()
    shutil.rmtree(copy.artifacts)
    done("sync", "live", "--home", str(copy.path))
    return shown(copy)


@pytest.mark.parametrize("study", [STUDY, UNTIL], ids=["all", "until"])
def test_curves_grow_while_seeds_train_and_are_what_sync_writes(study, seen, here):
    search.run(study, here / "home")
    forget_places()
    whole = shown(Home(here / "home"))
    lengths = set()
    for home in seen:
        forget_places()
        before = shown(home)
        lengths.add(len(reached(before, "seed 5")))
        for name, (_, _, params, steps) in before.items():
            assert params.items() <= whole[name][2].items() and name in whole
            for metric, points in steps.items():
                assert set(points) <= set(whole[name][3][metric]), f"{name}: {metric} was to be written otherwise"
    assert len(lengths) > (3 if study is STUDY else 1), "its curve grew while it trained"
    for name, (*_, steps) in whole.items():
        assert all(max(Counter(step for step, _ in points).values()) == 1 for points in steps.values()), name
    assert rebuilt(Home(here / "home")) == whole
    assert whole["seed 7"][1][OUTCOME_TAG] == "grokked" and {run[0] for run in whole.values()} == {"FINISHED"}


def test_a_seed_that_trains_is_running_and_one_that_has_ended_has_its_outcome(seen, here):
    search.run(STUDY, here / "home")
    outcomes = [{run[0]: run[1][OUTCOME_TAG] for name, run in shown(home).items() if name != "57p"} for home in seen]
    assert {"RUNNING": "running"} in outcomes and {"RUNNING": "running", "FINISHED": "grokked"} in outcomes


def test_what_a_killed_driver_leaves_is_gone_on_with_and_rebuilt_alike(seen, here):
    search.run(STUDY, here / "home")
    forget_places()
    whole = shown(Home(here / "home"))
    copies = [home for home in seen if "seed 5" in shown(home)][1:9:3]
    assert len(copies) == 3
    for home in copies:
        forget_places()
        search.run(STUDY, home.path)
        forget_places()
        assert shown(home) == whole


def test_a_best_seed_that_is_overtaken_loses_its_run(here, seen, monkeypatch):
    """Of seeds beyond the first ones the best has a run, and only the best."""
    monkeypatch.setattr(search.Study, "watched", property(lambda study: [Seed.of(5), Seed.of(6)]))
    search.run(STUDY | {"seeds": [5, 6, 8, 9, 7]}, here / "home")
    shown_before = set()
    for home in seen:
        forget_places()
        shown_before |= shown(home).keys()
    whole = shown(Home(here / "home"))
    assert shown_before & {"seed 8", "seed 9"}
    assert whole.keys() == {"57p", "seed 5", "seed 6", "seed 7"} and rebuilt(Home(here / "home")) == whole


def test_a_state_that_is_damaged_or_of_something_else_is_no_curve(seen, here):
    search.run(STUDY, here / "home")
    records = records_of(seen[5], "live")
    (configuration,) = records.list_configurations().values()
    read = records.results_so_far(configuration, {Seed.of(n) for n in range(5, 11)})
    result = read[Seed.of(5)]
    assert 0 < result.steps < STEPS and len(result.curve_EM) == result.steps // EVERY
    assert (result.curve_EM[:, 0] >= 0).all() and result.curve_EM.isfinite().all()
    pair, spec = configuration.pair(Seed.of(5)), configuration.trained
    rest = b"x" * 5_000
    for damaged in (b"", b"x" * 8, saved.digest(b""), saved.digest(rest) + rest, rest):
        assert saved.result_of(pair, spec, damaged) is None


@pytest.mark.end_to_end
def test_a_browser_shows_curves_of_seeds_that_train(seen, here, tmp_path_factory):
    """MLflow's UI on what a driver had written before any seed had ended."""
    search.run(STUDY, here / "home")
    forget_places()
    half = next(home for home in seen if len(reached(shown(home), "seed 5")) >= 4)
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(half.path, folder / "adder-runs")
    with served(folder) as ui, chromium(tmp_path_factory.mktemp("profile")) as browser:
        browser.get(entrance_of(ui))
        browser.get(page_of(ui, "live", "seeds"))
        visible(browser, "Seeds over steps", "seed 5", "seed 8", "loss")
        curves = ".js-plotly-plot .scatterlayer path.js-line"
        wait_until(lambda: len(browser.find_elements("css selector", curves)) >= 4, "curves of seeds that train")
