"""Deleting a study: what its ledger and the mirrors have of it, and its removal.

The ledger's rows go last: a deletion that was cut off is completed by the same one.
"""

from collections import Counter
from dataclasses import dataclass

from search.run.mirror import Held, mirrors
from search.stats.record import SeedRecord
from search.store.study_records import StudyRecords
from search.study.schema import is_name
from trainer import Outcome

NAMED = 20
"""Grokked seeds that are named one by one."""


@dataclass(frozen=True)
class Contents:
    """All that there is of a study."""

    records: StudyRecords
    rows: list[SeedRecord]
    proposals: int
    shown: list[Held]


def contents(records: StudyRecords) -> Contents:
    shown = [mirror.held(records) for mirror in mirrors()]
    return Contents(records, records.list_seeds(), len(records.list_proposals()), shown)


def describe(found: Contents) -> str:
    """Describe what a deletion would remove, for its owner to decide by."""
    counts = Counter(row.outcome for row in found.rows)
    outcomes = ", ".join(f"{counts[outcome]:,} {outcome}" for outcome in Outcome if counts[outcome])
    lines = [
        f"{found.records.study} in {found.records.home.path}",
        f"  seeds      {len(found.rows):,} ({outcomes or 'none'})",
    ]

    if grokked := sorted({row.seed for row in found.rows if row.has_grokked}):
        more = f" and {len(grokked) - NAMED:,} more" if len(grokked) > NAMED else ""
        lines.append(f"  grokked    {', '.join(map(str, grokked[:NAMED]))}{more}")

    for held in found.shown:
        lines += held.lines
    lines.append(f"  saved      states of {found.records.count_states():,} seeds that have not ended")
    if found.proposals:
        lines.append(f"  Optuna     {found.proposals:,} proposals")
    return "\n".join(lines)


def delete(found: Contents) -> str:
    """Delete a study that the caller has the lease of. Returns what remains to be done elsewhere, if anything.

    Raises Superseded if another driver has the study by now.
    """
    home, study = found.records.home, found.records.study
    assert is_name(study)
    found.records.lease.verify()
    home.progress(study).unlink(missing_ok=True)
    # Mirrors before the ledger: while that has the study, the same command completes a deletion that was cut off.
    remarks = [held.delete() for held in found.shown]
    found.records.delete_study()
    return "; ".join(filter(None, remarks))
