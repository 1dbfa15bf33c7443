"""What uninterrupted training gives, computed here without Ray, and what a home has recorded of a study.

`check_whole` compares all three records with it: ledger, artifacts and MLflow's runs.
"""

import json
import os
from collections import Counter
from contextlib import suppress
from dataclasses import astuple, replace
from unittest.mock import patch

import sqlalchemy as sa
from mlflow.artifacts import load_dict

from search.run.spared import Draw
from search.store.database import STATES
from search.store.home import Home
from search.study.file import parse_study
from search.study.space import points
from search.study.trial import Configuration
from tests.commands import running
from tests.homes import records_of
from tracking.store import KEY_TAG, PARENT_TAG, SEED_TAG, STUDY_TAG, connect
from trainer import MEASURES, Bank, Outcome
from trainer.road import RoadBank

QUICK = {
    "name": "quick",
    "model": "57p",
    "recipe": {"steps": 60, "batch": 32, "eval_every": 20, "warmup": 20, "curriculum": [[3, 30]],
               "fade_start": 30, "fade_end": 45},
    "seeds": {"first": 5, "count": 4},
    "stop": {"hopeless": False},
    # One slot: the second seed of a trial waits for the first, on any number of cores.
    "resources": {"cpu": 1, "gpu": 0, "slots": 1, "seeds_per_trial": 2, "compiled": False, "save_every": 1},
}  # fmt: skip
"""Four seeds in two trials, a second of training each."""
LONG = QUICK | {"recipe": QUICK["recipe"] | {"steps": 100_000}}
"""The same, which does not end by itself while a test looks."""


def write_study(folder, study):
    folder.mkdir(exist_ok=True)
    file = folder / f"{study['name']}.yaml"
    file.write_text(json.dumps(study))  # YAML too, without aliases
    return file


def running_study(study, folder, home="home", **options):
    """The command that runs a study, by a file in a folder that has its home too. Options: those of `running`."""
    words = ("run", write_study(folder, study), "--home", folder / home)
    return running(*words, **{"cwd": folder} | options)


def run_study(study, folder, home="home", **options):
    """Run a study to its end by a command of its own."""
    with running_study(study, folder, home, **options) as command:
        return command.wait()


def states(home):
    """The newest saved states of all pairs that are in training, in the home or on the server of this environment."""
    found = set()
    if (place := Home(home)).exists():
        engine = sa.create_engine(place.ledger_url)
        with suppress(sa.exc.SQLAlchemyError), engine.connect() as ledger:
            found = set(ledger.scalars(sa.select(STATES.c.state)))
        engine.dispose()
    return found


def wait_for_progress(command, home):
    """Until a state of a pair has been saved that was not there before."""
    before = states(home)
    command.wait_for(lambda: not states(home) <= before, "no state was saved")


def expected(study):
    """What a study's listed configurations must come to, or all points of its grid."""
    asked = parse_study(json.dumps(study), "expected")
    found = {}
    grid = [asked.configuration(point) for point in points(asked.space)] if asked.space else []
    draw, stop = Draw(asked), asked.stop
    for number, (spec, recipe) in enumerate(grid or asked.listed):
        configuration, seeds = Configuration(spec, recipe), asked.first_seeds
        pairs = [replace(configuration.pair(s), rules=stop.rules, spared=draw.is_spared(number, s)) for s in seeds]
        kind = RoadBank if recipe.stages else Bank
        bank = kind(spec, pairs, slots=asked.resources.slots or 1, compiled=asked.resources.compiled)
        while bank.advance():
            pass
        for n, seed in enumerate(seeds):
            found[configuration.key, seed.init_seed, seed.data_seed] = _facts(bank.result(n))
    return found


def _facts(result):
    """θ, curve, steps and outcome."""
    theta, curve = result.theta_P.numpy().tobytes(), result.curve_EM.numpy().tobytes()
    return theta, curve, result.steps, result.outcome.value


def environment(values):
    """This process's environment with some values, as a command's would be: a block after which it is as before."""
    return patch.dict(os.environ, values)


def client_of(home):
    return connect(Home(home))


def rows_of(home, study):
    records = records_of(home, study)
    rows = records.list_seeds()
    records.database.engine.dispose()  # a loop that looks often would take all of a server's connections
    return rows


def recorded(home, study):
    """What the ledger has of a study's seeds that have ended."""
    records = records_of(home, study)
    seeds = records.seeds(row for row in records.list_seeds() if row.is_final)
    found = {(s.configuration.key, *astuple(s.result.pair.seed)): _facts(s.result) for s in seeds}
    records.database.engine.dispose()
    return found


def runs_of(client, study):
    experiment = client.get_experiment_by_name(study).experiment_id
    return list(client.search_runs([experiment], max_results=5_000))


def check_whole(home, study, wanted):
    """A study is recorded as if nothing had happened: each seed once, with these results, nothing open."""
    name = study["name"]
    rows = rows_of(home, name)
    keys = [(r["configuration"], r["init_seed"], r["data_seed"]) for r in rows]
    assert sorted(keys) == sorted(wanted)
    assert all(r.is_final and r["owner"] is None for r in rows), rows
    assert {k: (r["steps"], r["outcome"]) for k, r in zip(keys, rows, strict=True)} == {
        k: (steps, outcome) for k, (_, _, steps, outcome) in wanted.items()
    }
    assert recorded(home, name) == wanted
    runs = runs_of(client_of(home), name)
    assert {r.info.status for r in runs} == {"FINISHED"}
    assert sum(STUDY_TAG in r.data.tags for r in runs) == 1
    of = Counter(r.data.tags[KEY_TAG] for r in runs if KEY_TAG in r.data.tags)
    assert of == Counter({key for key, _, _ in wanted})
    seeds = [r.data.tags for r in runs if SEED_TAG in r.data.tags]
    assert len({(t[PARENT_TAG], t[SEED_TAG]) for t in seeds}) == len(seeds)
    for run in runs:
        if KEY_TAG in run.data.tags:
            check_run(home, run, wanted)
    records = records_of(home, name)
    assert records.get_study()["owner"] is None
    assert records.list_configurations().keys() == {key for key, _, _ in wanted}
    if study.get("space"):
        proposed = {p["configuration"] for p in records.list_proposals()} - {None}
        assert proposed == {key for key, _, _ in wanted}, "a proposal was left open"


def ends_whole(study, folder, home, wanted=None, **options):
    """Run a study to its end by a command of its own, and compare its records with uninterrupted training."""
    said = run_study(study, folder, home, **options)
    assert said.code == 0, said
    check_whole(home, study, wanted or expected(study))
    return said


def check_run(home, run, wanted):
    """A configuration's counts are those of its seeds, and each step's metrics are there once."""
    mine = [facts for (key, _, _), facts in wanted.items() if key == run.data.tags[KEY_TAG]]
    counts = Counter(outcome for _, _, _, outcome in mine)
    for outcome in Outcome:
        if outcome not in (Outcome.QUEUED, Outcome.RUNNING):
            assert run.data.metrics.get(f"final.{outcome.value}", 0) == counts[outcome.value], outcome
    every = load_dict(f"{run.info.artifact_uri}/configuration.json")["recipe.eval_every"]
    longest = max(len(curve) for _, curve, _, _ in mine) // (4 * len(MEASURES)) * every
    history = client_of(home).get_metric_history(run.info.run_id, "first_seeds.median_token")
    assert sorted(m.step for m in history) == list(range(every, longest + 1, every))
