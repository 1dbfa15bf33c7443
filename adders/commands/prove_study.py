"""Verdicts on all pairs of numbers, for the seeds of a study that grokked."""

from collections.abc import Iterator
from typing import Any

from adders.proof.file import decide, is_of_program
from model.tasks import only_addition
from model.verdict import is_right
from search.errors import reraise_as
from search.stats.counting import rank
from search.stats.record import SeedRecord
from search.store.study_records import StudyRecords


def prove_study(records: StudyRecords, limit_s: float) -> Iterator[tuple[SeedRecord, dict[str, Any]]]:
    """Decide the grokked seeds of a study, the best first: yield a row and its verdict.

    Each is recorded as it is decided; what was decided before, of the same program, is not asked again.
    """
    grokked = [r for r in records.list_seeds() if r.has_grokked]
    for row in sorted(grokked, key=rank):
        seed = records.seed(row)
        spec, theta_P = seed.configuration.spec, seed.result.theta_P
        if row.proof and is_right(row.proof) is not None and is_of_program(row.proof, spec, theta_P):
            continue
        with reraise_as():
            only_addition(spec.task, "prove --study")
        proof = decide(spec, theta_P, limit_s)
        records.record_proof(row.key, proof)
        yield row, proof
