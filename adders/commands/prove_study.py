"""Verdicts on all pairs of numbers, for the seeds of a study that grokked."""

from collections.abc import Iterator
from typing import Any

from adders.proof.file import decide, own_verdict
from model.tasks import only_addition
from search.errors import Failure, reraise_as
from search.stats.counting import rank
from search.stats.record import SeedRecord
from search.store.study_records import StudyRecords


def prove_study(records: StudyRecords, limit_s: float) -> Iterator[tuple[SeedRecord, dict[str, Any]]]:
    """Decide the grokked seeds of a study, the best first: yield a row and its verdict.

    Each is recorded as it is decided; what was decided before, of the same program, is not asked again. Raises Failure
    for a seed that is not decided and whose θ is lost, and UserError for one that cannot be exported.
    """
    grokked = [r for r in records.list_seeds() if r.has_grokked]
    for row in sorted(grokked, key=rank):
        try:
            seed = records.seed(row)
        except Failure:
            if row.proved is None:
                raise
            continue  # a verdict stays what it was where its θ is lost
        spec, theta_P = seed.configuration.spec, seed.result.theta_P
        with reraise_as():
            only_addition(spec.task, "prove --study")
            if row.proved is not None and own_verdict(row.proof, spec, theta_P):
                continue
            proof = decide(spec, theta_P, limit_s)
        records.record_proof(row.key, proof)
        yield row, proof
