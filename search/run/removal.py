"""Deleting a study: what its ledger and the mirrors have of it, and its removal.

The ledger's rows go last: a deletion that was cut off is completed by the same one.
"""

from collections import Counter

from search.run.mirror import mirrors
from search.store.study_records import StudyRecords
from search.study.schema import is_name
from trainer import Outcome

NAMED = 20
"""Grokked seeds that are named one by one."""


def describe(records: StudyRecords) -> str:
    """Describe what a deletion would remove, for its owner to decide by."""
    rows = records.list_seeds()
    counts = Counter(row.outcome for row in rows)
    outcomes = ", ".join(f"{counts[outcome]:,} {outcome}" for outcome in Outcome if counts[outcome])
    lines = [f"{records.study} in {records.home.path}", f"  seeds      {len(rows):,} ({outcomes or 'none'})"]

    if grokked := sorted({row.seed for row in rows if row.has_grokked}):
        more = f" and {len(grokked) - NAMED:,} more" if len(grokked) > NAMED else ""
        lines.append(f"  grokked    {', '.join(map(str, grokked[:NAMED]))}{more}")

    for mirror in mirrors():
        lines += mirror.held(records).lines
    lines.append(f"  saved      states of {records.count_states():,} seeds that have not ended")
    if proposals := len(records.list_proposals()):
        lines.append(f"  Optuna     {proposals:,} proposals")
    return "\n".join(lines)


def delete(records: StudyRecords) -> str:
    """Delete a study that the caller has the lease of. Returns what remains to be done elsewhere, if anything.

    Raises Superseded if another driver has the study by now.
    """
    assert is_name(records.study)
    records.lease.verify()
    shown = [mirror.held(records) for mirror in mirrors()]
    records.home.progress(records.study).unlink(missing_ok=True)
    # Mirrors before the ledger: while that has the study, the same command completes a deletion that was cut off.
    remarks = [held.delete() for held in shown]
    records.delete_study()
    return "; ".join(filter(None, remarks))
