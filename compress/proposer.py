"""The key `compress` of a study file: a kind of study (search/study/kind.py) whose constraints the machine finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from compress.section import Accept, Compress, section_of
from compress.ties import tie_ramp_defaults
from search.study.kind import Kind
from search.study.space import Strict, error_at

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from compress.study import StudyDescent
    from search.store.study_records import StudyRecords
    from search.study.ancestors import Step
    from search.study.start import InitialTheta
    from tracking.tracker import Tracker
    from trainer import Seed

OTHERS = ("model", "configurations", "toggle", "combine", "space", "allocation", "confirm")


class Keys(Strict):
    compress: Compress | None = Field(None, description="constraints to be found for the θ of start")


class Compression(Kind):
    """Studies of descents. What a study does not need is not imported."""

    asked_by = ("compress",)
    keys = Keys
    proposes = True
    is_compared = False

    def __init__(self, study: Any):
        super().__init__(study)
        self.section = section_of(study)
        self.round_size = self.section.proposals

    def check_alone(self) -> None:
        study = self.study
        if study.start is None or study.start.each:
            raise error_at("start", "compress needs it: a study and its best or one seed, or a checkpoint")
        for name in OTHERS:
            if getattr(study, name):
                raise error_at(name, "does not go with compress, which makes the models")
        if study.until.grokked is not None:
            raise error_at("until", "does not go with compress, which ends by rounds and patience")

    def check(self) -> None:
        if not self.study.base_recipe.ramp:
            raise error_at("recipe.ramp", "compress needs one: at 1 or more")

    @property
    def planned(self) -> int:
        return self.section.rounds * self.section.proposals

    def check_begun(self, before: Mapping[str, Any]) -> None:
        from search.run.extension import begun_otherwise

        begun = Accept.model_validate(before["compress"].get("accept", {}))
        if not self.section.accept.takes_over(begun):
            raise begun_otherwise(self.study, "compress.accept", begun, self.section.accept)

    def recipe_defaults(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the recipe by which ties take hold in so many steps as the fields say."""
        usual = tie_ramp_defaults()
        steps = fields.get("steps", usual["steps"])
        is_known = type(steps) is int and steps > 0
        return tie_ramp_defaults(steps) if is_known else {}

    def propose(self, parents: Sequence[InitialTheta], records: StudyRecords) -> StudyDescent:
        from compress.study import StudyDescent

        return StudyDescent(self.study, parents, records)

    def plan_round(self, recorded: int) -> list[str]:
        """Return lines on rounds and seeds. The number of rounds is not known."""
        compress = self.section
        steps = self.study.base_recipe.steps
        sets = f"{compress.proposals} sets each by {compress.proposer}, beam {compress.beam}"
        return [
            f"  rounds          up to {compress.rounds}, of {sets}",
            f"  seeds           {len(self.first_seeds)} of each set, {steps:,} steps each; {recorded:,} recorded",
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
        lines = [f"{name}: {len(judged):,} sets tried in {rounds:,} rounds, {accepted:,} kept"]
        line = " → ".join(f"{t.numbers:,}" for t in lineage_of(sets, least.number))
        lines.append(f"  the smallest has {least.numbers:,} numbers: {line}")
        below = [t for t in judged if t.numbers < least.numbers]
        if below:
            best = max(below, key=lambda t: (t.reached or 0.0, -(t.wrong or 0)))
            wrong = f", then {best.wrong:,} of our own problems wrong" if best.wrong else ""
            lines.append(f"  of {len(below)} smaller ones the best has {best.numbers:,}: {best.reached:.4f}{wrong}")
        return lines

    def write_pages(self, records: StudyRecords, tracker: Tracker) -> None:
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


COMPRESSION = Compression
