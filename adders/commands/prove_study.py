"""Verdicts on all pairs of numbers, for the seeds of a study that grokked."""

from collections.abc import Iterator
from typing import Any

from adders.proof.file import decide
from model.verdict import is_right
from search.analysis.publish import conclude, register_best
from search.errors import Failure
from search.stats.counting import rank
from search.store.record import SeedRecord
from search.store.study_records import StudyRecords
from search.tracking.artifacts import ArtifactCache
from search.tracking.tracker import Tracker
from search.tracking.tracking import answered, connect
from trainer import Outcome


def prove_study(records: StudyRecords, limit_s: float) -> Iterator[tuple[SeedRecord, dict[str, Any]]]:
    """Decide the grokked seeds of a study, the best first: yield a row and its verdict.

    Each is recorded as it is decided; what was decided before is not asked again. MLflow has them at the end. The
    caller has the study's lease.
    """
    study = records.get_recorded_study()
    if study is None:
        raise Failure(f"study {records.study} has no record of its file; run it again first")
    client, rows = connect(records.home), records.list_seeds()
    grokked = [r for r in rows if r["outcome"] == Outcome.GROKKED and r["published"]]
    with ArtifactCache(client, records) as artifacts:
        for row in sorted(grokked, key=rank):
            if is_right(row["proof"]) is not None:
                continue
            seed = artifacts.seed(row)
            proof = decide(seed.configuration.spec, seed.result.theta_P, limit_s)
            records.record_proof((row["configuration"], row["init_seed"], row["data_seed"]), proof)
            yield row, proof
        with answered(client.tracking_uri):
            tracker = Tracker(
                client, records.home, study, bool(grokked), records.lease.verify, records.published_runs()
            )
            rows = records.list_seeds()
            decided = {row["configuration"] for row in rows if row["proof"]}
            for key, configuration in records.list_configurations().items():
                if key in decided:
                    conclude(records, tracker, artifacts, configuration, status=None)
            register_best(records, tracker, artifacts, rows)
