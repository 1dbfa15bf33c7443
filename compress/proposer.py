"""The key `compress` of a study file: constraints that the machine finds (search/run/proposer.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compress.section import Compress, section_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from compress.study import StudyDescent
    from search.store.study_records import StudyRecords
    from search.study.ancestors import Step
    from search.study.schema import Study
    from search.study.start import InitialTheta
    from search.tracking.tracker import Tracker
    from trainer import Seed


class Compression:
    """Studies of descents. What a study does not need is not imported."""

    section = Compress
    description = "constraints to be found for the θ of start"

    def propose(self, study: Study, parents: Sequence[InitialTheta], records: StudyRecords) -> StudyDescent:
        from compress.study import StudyDescent

        return StudyDescent(study, parents, records)

    def plan(self, study: Study, recorded: int) -> list[str]:
        """Return lines on rounds and seeds. The number of rounds is not known."""
        compress = section_of(study)
        steps = study.base_recipe.steps
        sets = f"{compress.proposals} sets each by {compress.proposer}, beam {compress.beam}"
        return [
            f"  rounds          up to {compress.rounds}, of {sets}",
            f"  seeds           {len(study.first_seeds)} of each set, {steps:,} steps each; {recorded:,} recorded",
        ]

    def summary(self, records: StudyRecords) -> list[str]:
        """Return the progress of a study of descents: its sets, and the smallest that was kept."""
        from compress.candidates import DatabaseCandidates, lineage_of, smallest

        name = records.study
        sets = DatabaseCandidates(records).read()
        judged = [t for t in sets if t.configuration and t.reached is not None]
        least = smallest(sets)
        if least is None:
            return [f"{name}: no set has been tried"]
        rounds = len({t.round for t in judged})
        accepted = sum(t.start is not None for t in judged)
        lines = [f"{name}: {len(judged):,} sets tried in {rounds} rounds, {accepted} kept"]
        line = " → ".join(str(t.numbers) for t in lineage_of(sets, least.number))
        lines.append(f"  the smallest has {least.numbers} numbers: {line}")
        below = [t for t in judged if t.numbers < least.numbers]
        if below:
            best = max(below, key=lambda t: (t.reached or 0.0, -(t.wrong or 0)))
            wrong = f", then {best.wrong:,} of our own problems wrong" if best.wrong else ""
            lines.append(f"  of {len(below)} smaller ones the best has {best.numbers}: {best.reached:.4f}{wrong}")
        return lines

    def log(self, records: StudyRecords, tracker: Tracker) -> None:
        from compress.pictures import log_descents

        log_descents(records, tracker)

    def lineages(self, records: StudyRecords) -> list[list[Step]] | None:
        from compress.candidates import DatabaseCandidates, lineages

        sets = DatabaseCandidates(records).read()
        return lineages(sets) if sets else None

    def best(self, records: StudyRecords) -> tuple[str, Seed] | None:
        from compress.candidates import DatabaseCandidates, smallest
        from trainer import Seed

        least = smallest(DatabaseCandidates(records).read())
        if least is None or least.start is None or least.configuration is None:
            return None
        return least.configuration, Seed.named(least.start.lineage[-1]["seed"])

    def pictures(self, records: StudyRecords) -> dict[str, Figure]:
        from compress.candidates import DatabaseCandidates

        sets = DatabaseCandidates(records).read()
        if not sets:
            return {}
        from compress.pictures import pictures

        return pictures(sets)


COMPRESSION = Compression()
