"""What a run would train next, as its own planner says: a dry run counts with the code that trains."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import TYPE_CHECKING, Any, cast

from search.record import SeedRecord
from search.run.planner import Planner, plan
from search.run.study_run import Round
from search.store.study_records import StudyRecords, Values
from search.study.described import impossible
from search.study.schema import Study
from search.study.space import Numbers, order
from search.study.start import InitialTheta
from search.study.trial import Configuration

if TYPE_CHECKING:
    from search.run.proposals import Proposals

BY_NUMBER = ("random", "qmc", "grid")
"""Samplers whose proposals do not depend on results."""
MOST_DRAWN = 1_000
"""Proposals that are drawn for a forecast at most."""
DRAWN = 200
"""Points at random of a search whose proposals depend on results, by which a plan says how many are impossible."""


class Draft:
    """A study's records, if it has any, as a planner reads them. What it would write is kept here."""

    def __init__(self, records: StudyRecords | None, rows: Sequence[SeedRecord]):
        self.records, self.rows = records, rows
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
    is_random: bool = False
    """True if those were points at random: further proposals depend on results."""
    is_bound: bool = False
    """True if further proposals may come to fewer configurations."""

    @property
    def tried(self) -> int:
        return DRAWN if self.is_random else self.proposals

    def add(self, rounds: Iterable[Round], times: int) -> None:
        for planned in rounds:
            counter = self.confirmation if planned.confirmation else self.search
            counter[planned.configuration] += times * len(planned.seeds)


def forecast(study: Study, rows: Sequence[SeedRecord] = (), records: StudyRecords | None = None) -> Forecast:
    """Return what a run of a study trains next. Raises UserError for records that it cannot go on from.

    rows: the study's seeds; records: of a study that was begun. Not for a study that looks for constraints.
    """
    draft, times, known = Draft(records, rows), 1, Forecast()
    if study.start and not draft.list_parents():  # each θ that a run chooses when it begins is trained like the first
        times = study.start.count
        study = study.model_copy(update={"start": None})
    planner = plan(study, cast(StudyRecords, draft))
    known.add(planner.planned_rounds(), times)
    proposals = cast("Proposals | None", planner.search.proposals)
    if proposals:
        _draw(study, planner, proposals, known)
        known.proposals = len(draft.list_proposals()) + len(draft.proposed)
    _count_configurations(study, planner, known, times)
    if proposals:
        _note_further(study, planner, proposals, known, draft)
    if not (known.search or known.is_random):
        known.add(planner.plan_further(), times)
    return known


def _draw(study: Study, planner: Planner, proposals: "Proposals", known: Forecast) -> None:
    """Draw the proposals that do not depend on results, and count what of them is trained."""
    if study.sampler.name not in BY_NUMBER or proposals.remaining > MOST_DRAWN:
        return
    while planner.search.has_more() and (configuration := proposals.ask()):
        is_new = configuration.key not in planner.study_run.states
        state = planner.study_run.add(configuration)
        if is_new and (first := planner.study_run.first_round(state)):
            known.add([first], 1)


def _count_configurations(study: Study, planner: Planner, known: Forecast, times: int) -> None:
    further = {seed for seeds in study.rounds[1:] for seed in seeds}
    for state in planner.study_run.states.values():
        seeds = study.seeds_of((state.configuration.spec, state.configuration.recipe))
        known.configurations += times
        known.asked += times * len(seeds)
        wanted = further.union(seeds)
        known.recorded += sum(row.is_final and not row.confirmation for s, row in state.rows.items() if s in wanted)


def _note_further(study: Study, planner: Planner, proposals: "Proposals", known: Forecast, draft: Draft) -> None:
    """Bound what proposals that were not drawn may add, and note how many are impossible."""
    space = study.space
    if planner.search.has_more():
        sizes = [len(distribution.values()) for distribution in space.values()]
        left = prod(sizes) - known.configurations if all(sizes) else proposals.remaining
        new = max(0, min(proposals.remaining, left))
        known.search[Configuration(*study.listed[0])] += new * len(study.first_seeds)
        known.asked += new * len(study.first_seeds)
        known.configurations += new
        known.proposals += proposals.remaining
        chance = Random(0)
        tried = [{p: space[p].draw(chance) for p in order(space)} for _ in range(DRAWN)]
        known.impossible, known.is_random = impossible(study, tried), True
        # a child of nsga2 may be its parent again; of a continuum no other sampler draws a point twice
        known.is_bound = study.sampler.name == "nsga2" or all(sizes) or bool(known.impossible)
    else:
        numbers = [row["numbers"] for row in draft.list_proposals() if row["configuration"] is None]
        numbers += [numbers_ for configuration, numbers_ in draft.proposed if configuration is None]
        known.impossible = impossible(study, numbers)
