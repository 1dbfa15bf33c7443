"""What proposes configurations while a study runs, and is told what becomes of them: packages, by a key of its file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from search.stats.counting import Row
from search.store.study_records import StudyRecords
from search.study.ancestors import Step
from search.study.proposer import ProposerKey, proposer_keys
from search.study.schema import Study
from search.study.start import InitialTheta
from search.study.trial import Configuration
from trainer import Seed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from search.tracking.tracker import Tracker


class ProposalSource(Protocol):
    """Proposals of one study, as a planner asks for them."""

    @property
    def exhausted(self) -> bool:
        """True if no proposal follows."""

    def proposed(self) -> list[Configuration]:
        """Return what was proposed in earlier runs, and is not judged."""

    def ask(self) -> Configuration | None:
        """Return the next proposal; None while it depends on what is in training, and at the end."""

    def tell(self, configuration: Configuration, rows: Sequence[Row], /) -> None:
        """Take the outcomes of a proposal whose seeds have ended."""


class Proposer(ProposerKey, Protocol):
    """A kind of study that a package adds. Of a package with an object `WALK` in adder_walk.py, in its pyproject.toml:

    [project.entry-points."adder_search.proposers"]
    walk = "adder_walk:WALK"

    Then `walk: {...}` in a study file is a section of the class `WALK.section`.
    """

    def propose(self, study: Study, parents: Sequence[InitialTheta], records: StudyRecords, /) -> ProposalSource:
        """Return the proposals of a study, or go on with them. parents: each θ that it starts from. Raise UserError."""

    def plan(self, study: Study, recorded: int, /) -> list[str]:
        """Return the lines of `run --dry-run` on what is asked. recorded: number of its seeds that the home has."""

    def summary(self, records: StudyRecords, /) -> list[str]:
        """Return the lines of a run's summary on what was proposed."""

    def log(self, records: StudyRecords, tracker: Tracker, /) -> None:
        """Write the end of a study to MLflow."""

    def lineages(self, records: StudyRecords, /) -> list[list[Step]] | None:
        """Return the ancestors of the best of each size; None of a study of another kind."""

    def best(self, records: StudyRecords, /) -> tuple[str, Seed] | None:
        """Return the best configuration's key and its seed; None of a study of another kind, or before there is one."""

    def pictures(self, records: StudyRecords, /) -> dict[str, Figure]:
        """Return pictures for a study's page, by name; none of a study of another kind."""


def proposers() -> dict[str, Proposer]:
    """Return the proposers of all packages, by key."""
    return cast(dict[str, Proposer], proposer_keys())


def proposer_of(study: Study) -> Proposer | None:
    """Return what proposes a study's configurations; None if its file lists them, or a sampler of Optuna's does."""
    return proposers()[study.proposer_key] if study.proposer_key else None


def proposed_lineages(records: StudyRecords) -> list[list[Step]] | None:
    """Return the ancestors of the best proposals of a study; None of a study whose proposer tells of none."""
    found = (proposer.lineages(records) for proposer in proposers().values())
    return next((lines for lines in found if lines is not None), None)


def best_proposal(records: StudyRecords) -> tuple[str, Seed] | None:
    """Return the best proposal of a study, a configuration's key and a seed; None where no proposer tells of one."""
    found = (proposer.best(records) for proposer in proposers().values())
    return next((best for best in found if best is not None), None)
