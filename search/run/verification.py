"""The best seeds of a configuration are decoded on the problems that verify its task."""

from model import Verification, verify
from search.stats.counting import group_by, rank
from search.stats.record import SeedRecord
from search.store.recorded_seed import RecordedSeed
from search.store.study_records import StudyRecords

BEST = 3
"""So many seeds of a configuration are decoded, if they grokked."""


def seeds_to_decode(rows: list[SeedRecord]) -> list[SeedRecord]:
    """Return the seeds of a configuration that are decoded, the best first. rows: its own."""
    ended = sorted((row for row in rows if row.is_final), key=rank)
    return [row for row in ended[:BEST] if row.has_grokked]


def verify_seed(records: StudyRecords, row: SeedRecord, seed: RecordedSeed) -> Verification:
    """Decode a seed, and record its number of right answers unless the ledger has it. row: the seed's."""
    decoded = verify(seed.configuration.spec, seed.result.theta_P)
    if row.verified is None:
        records.record_verification(row.key, decoded.correct)
    return decoded


def verify_best(records: StudyRecords) -> None:
    """Decode the best seeds of each configuration that no mirror has decoded."""
    for rows in group_by(records.list_seeds(), "configuration").values():
        for row in seeds_to_decode(rows):
            if row.verified is None:
                verify_seed(records, row, records.seed(row))
