"""What a run would train next, as its own planner says: a dry run counts with the code that trains."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from search.run.planner import Planner, plan
from search.run.study_run import Round
from search.stats.record import SeedRecord
from search.store.study_records import StudyRecords, Values
from search.study.schema import Study
from search.study.space import Numbers
from search.study.start import InitialTheta
from search.study.trial import Configuration


class Draft:
    """A study's records, if it has any, as a planner reads them. What it would write is kept here."""

    def __init__(self, records: StudyRecords | None, rows: Sequence[SeedRecord]):
        self.records = records
        self.rows = rows
        self.proposed: list[tuple[Configuration | None, Numbers]] = []

    def list_seeds(self) -> list[SeedRecord]:
        return list(self.rows)

    def list_proposals(self) -> list[Values]:
        return list(self.records.list_proposals()) if self.records else []

    def list_configurations(self) -> dict[str, Configuration]:
        return self.records.list_configurations() if self.records else {}

    def list_parents(self) -> list[InitialTheta]:
        return self.records.list_parents() if self.records else []

    def create_proposal(self, number: int, configuration: Configuration | None, numbers: Numbers) -> None:
        self.proposed.append((configuration, numbers))

    def create_configurations(self, *given: Any) -> None:
        """Forget configurations, which the ledger has or a run will have."""


@dataclass
class Forecast:
    """Seeds that a run trains before results decide what follows."""

    search: Counter[Configuration] = field(default_factory=Counter)
    confirmation: Counter[Configuration] = field(default_factory=Counter)
    asked: int = 0
    """Seeds of the first round of all configurations."""
    recorded: int = 0
    """Seeds of the search that are recorded, of rounds that the file has."""
    configurations: int = 0
    proposals: int = 0
    """Proposals of a search, those of earlier runs included."""
    impossible: list[str] = field(default_factory=list)
    """Why proposals make no configuration: a text for each that does not, of so many that were `tried`."""
    tried: int = 0
    is_random: bool = False
    """True if those were points at random: further proposals depend on results."""
    is_bound: bool = False
    """True if further proposals may come to fewer configurations."""

    def add(self, rounds: Iterable[Round], times: int) -> None:
        for planned in rounds:
            counter = self.confirmation if planned.confirmation else self.search
            counter[planned.configuration] += times * len(planned.seeds)


def forecast(study: Study, rows: Sequence[SeedRecord] = (), records: StudyRecords | None = None) -> Forecast:
    """Return what a run of a study trains next. Raises UserError for records that it cannot go on from.

    rows: the study's seeds; records: of a study that was begun. Not for a study that looks for constraints.
    """
    draft, known = Draft(records, rows), Forecast()
    times = 1
    if study.start and not draft.list_parents():
        # The run chooses its θ when it begins: seeds from each are as many as without a start.
        times = study.start.count
        study = study.model_copy(update={"start": None})

    planner = plan(study, cast(StudyRecords, draft))
    known.add(planner.planned_rounds(), times)
    study.kind.foresee(planner, draft, known)
    _count_configurations(study, planner, known, times)
    if not (known.search or known.is_random):
        known.add(planner.plan_further(), times)
    return known


def _count_configurations(study: Study, planner: Planner, known: Forecast, times: int) -> None:
    """Count configurations, their first seeds, and what of their rounds is recorded. times: θ that each starts from."""
    further = {seed for seeds in study.rounds[1:] for seed in seeds}
    for state in planner.study_run.states.values():
        seeds = study.kind.seeds_of((state.configuration.spec, state.configuration.recipe))
        known.configurations += times
        known.asked += times * len(seeds)

        wanted = further.union(seeds)
        known.recorded += sum(row.is_final and row.seed in wanted for row in state.search_rows)
