"""What MLflow has of a study's adders as models: the door `adder_search.models` (search/plugins.py)."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from mlflow.exceptions import MlflowException

from adders.proof.file import own_verdict
from adders.registry.models import BEST, Facts, adderboard_dataset, log_model, register
from model import Verification
from model.tasks import ADDITION
from model.verdict import is_right
from reports.markup import escape
from search.analysis.pareto import best_of
from search.stats.counting import group_by, rank
from search.stats.record import SeedRecord
from search.store.recorded_seed import RecordedSeed
from search.store.study_records import StudyRecords
from tracking.datasets import log_dataset
from tracking.tracker import ShownRun, Tracker


def write_seed(tracker: Tracker, run: ShownRun, seed: RecordedSeed, decoded: Verification) -> None:
    """Note that a seed was measured on AdderBoard's additions, and write its checkpoint as a logged model.

    Nothing of a seed that does not add.
    """
    if seed.configuration.spec.adds:
        log_dataset(tracker.client, run.id, adderboard_dataset())
        _log_model(tracker, run, seed, Facts(decoded.correct, decoded.margin))


def _log_model(tracker: Tracker, run: ShownRun, seed: RecordedSeed, facts: Facts) -> str:
    """Write a seed's checkpoint as a logged model of its run, once, and return the model's id."""
    return log_model(tracker.client, tracker.experiment, run.id, seed.checkpoint(), facts, tracker.check_place)


def write_study(
    records: StudyRecords,
    tracker: Tracker,
    rows: Sequence[SeedRecord],
    configurations: Sequence[Mapping[str, Any]],
) -> None:
    """Register the best verified seed of the study's best configuration, if it has one, and of the smallest with one.

    Of all configurations the best is chosen, not of the verified ones; adders alone are registered.

    rows: the study's seeds. configurations: rows of the frame.
    """
    # a study may train other tasks beside addition
    adders = {key for key, c in records.list_configurations().items() if c.spec.adds}
    verified = []
    for row in rows:
        if row.has_grokked and row.configuration in adders and row.verified == ADDITION.problems:
            verified.append(row)
    by_key = group_by(sorted(verified, key=rank), "configuration")
    candidates = [row for row in configurations if row["configuration"] in by_key]
    if not candidates:
        return
    first = (best_of(configurations) or {}).get("configuration", "")
    smallest = min(candidates, key=lambda row: (row["params"], row["configuration"] != first))
    aliases_of: dict[str, tuple[str, ...]] = {smallest["configuration"]: ()}
    if first in by_key:  # the best one's version is the later one, and has the alias where both are one
        aliases_of[first] = (BEST,)
    for key, aliases in aliases_of.items():
        best = by_key[key][0]
        seed = records.seed(best)
        # a verdict on an earlier program is none on the one that is registered
        verdict = own_verdict(best.proof, seed.configuration.spec, seed.result.theta_P)
        _register(tracker, seed, Facts(ADDITION.problems, proved=is_right(verdict)), aliases)
    if first not in by_key:
        _take_back(tracker, BEST)


def _take_back(tracker: Tracker, alias: str) -> None:
    """Take an alias from a version of this study: a study of its name, of another ledger, may have it too."""
    client, name = tracker.client, tracker.study.name
    version = client.get_registered_model(name).aliases.get(alias)
    if not version:
        return
    with suppress(MlflowException):  # its run is not there any more
        run = client.get_run(client.get_model_version(name, version).run_id)
        if run.info.experiment_id == tracker.experiment:
            client.delete_registered_model_alias(name, alias)


def _register(tracker: Tracker, seed: RecordedSeed, facts: Facts, aliases: Sequence[str]) -> None:
    """Make a seed's checkpoint a version of the registered model that has the study's name."""
    study = tracker.study.name
    number = seed.result.pair.seed
    run = tracker.seed_run(seed.configuration, number)
    model_id = _log_model(tracker, run, seed, facts)
    about = escape(f"seed {number} of {tracker.study.kind.name_of(seed.configuration)}, study {study}")
    register(tracker.client, study, model_id, run.id, seed.checkpoint(), facts, aliases, about)
