"""A search: configurations that a sampler of Optuna's proposes, out of a space (search/kinds/proposals.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import cached_property, partial
from math import prod
from random import Random
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field

from model import Spec
from search.study.described import describe, describe_sizes, describe_values, impossible_remark
from search.study.kind import Asked, Kind
from search.study.sampler import PARAMS, Sampler, section_of
from search.study.space import (
    Distribution,
    Numbers,
    Strict,
    check_space,
    conditions,
    corners,
    fixed,
    numbers_by,
    refuse,
    resolve,
)
from search.study.start import InitialTheta
from search.study.trial import CARRY_MIX, Configuration
from search.study.warm import KEY as WARM_START
from search.study.warm import known_trials
from trainer import Recipe

if TYPE_CHECKING:
    from pathlib import Path

    from search.kinds.proposals import Proposals
    from search.run.forecast import Draft, Forecast
    from search.run.planner import Planner
    from search.store.study_records import StudyRecords

BY_NUMBER = ("random", "qmc", "grid")
"""Samplers whose proposals do not depend on results."""
MOST_DRAWN = 1_000
"""Proposals that are drawn for a forecast at most."""
DRAWN = 200
"""Points at random of a search whose proposals depend on results, by which a plan says how many are impossible."""
IN_STEPS = {f"recipe.{field.name}" for field in fields(Recipe) if field.metadata["unit"] == "steps"}


class Keys(Strict):
    space: dict[str, Distribution] = Field(
        default_factory=dict, description="searched fields: recipe.NAME, model.NAME or task.NAME"
    )
    sampler: Sampler = Field(default=Sampler())


class Search(Kind):
    """Configurations that are drawn from a space, each trained with the first seeds."""

    asked_by = ("space",)
    keys = Keys
    are_keys_last = True
    proposes = True
    says_sizes = True

    def __init__(self, study: Any):
        super().__init__(study)
        self.space = study.space
        self.sampler = section_of(study)
        self.sought = self.sampler.sought
        self.seeks_few_parameters = PARAMS in self.sampler.directions
        self.goal = self.sampler.described
        self.proposer = f"{self.sampler.name} (sampler seed {self.sampler.seed})"
        if self.sampler.warm_start:
            self.proposer += f", which knew {self.sampler.warm_start}"

    def check(self) -> None:
        study, start = self.study, self.study.start
        check_space(self.space, study.configuration)
        self.sampler.planned(self.space)
        learns_nothing = f"{WARM_START}: {self.sampler.name} learns from no trial; take tpe or nsga2"
        refuse(
            (start and start.count > 1, "start.best: a search starts from one θ"),
            (self.sampler.warm_start and self.sampler.name in BY_NUMBER, learns_nothing),
        )
        if self.sampler.warm_start:
            known_trials(self.sampler.warm_start, self.space, self.sampler.directions)

    # ---- its configurations

    @cached_property
    def spelled_out(self) -> list[Asked]:
        """The configuration in which no field is searched."""
        return [self.base]

    @property
    def planned(self) -> int:
        return self.sampler.planned(self.space)

    def impossible(self, proposals: Iterable[Numbers]) -> list[str]:
        """Return why proposals make no configuration, a text for each that does not.

        Numbers of an earlier space say nothing of this one.
        """
        problems = []
        for numbers in proposals:
            with suppress(ValueError):
                values = self.study.resolved(numbers)
                try:
                    self.study.configuration(values)
                except ValueError as error:
                    problems.append(str(error))
        return problems

    # ---- its run

    def propose(self, parents: Sequence[InitialTheta], records: StudyRecords) -> Proposals:
        from search.kinds.proposals import Proposals

        if not parents:
            return Proposals(self.study, records)
        from search.store.starts import configuration_from_parent

        return Proposals(self.study, records, partial(configuration_from_parent, parent=parents[0]))

    @classmethod
    def changed(cls, was: bool) -> str:
        now = "a search, the file now has no space" if was else "a list, the file now has a space"
        return f"was begun as {now}"

    # ---- its words

    def name_of(self, configuration: Configuration) -> str:
        if self.study.start:
            return configuration.title
        value = fixed(configuration.spec, configuration.recipe)
        searched = [path for path in self.space if conditions(self.space, path).items() <= value.items()]
        return describe_values(configuration, searched)

    @cached_property
    def varied(self) -> list[str]:
        return list(self.space)

    def longest_budget(self, recipe: Recipe) -> int:
        searched = self.space.get("recipe.steps")
        return max(searched.ends()) if searched else recipe.steps

    # ---- the plan of a run

    def foresee(self, planner: Planner, draft: Draft, known: Forecast) -> None:
        """Draw the proposals that do not depend on results; of others, bound what they may add."""
        proposals = cast("Proposals", planner.search.proposals)
        if self.sampler.name in BY_NUMBER and proposals.remaining <= MOST_DRAWN:
            self._draw(planner, proposals, known)
        known.proposals = known.tried = len(draft.list_proposals()) + len(draft.proposed)
        if planner.search.has_more():
            self._bound(planner, proposals.remaining, known)
            return

        # All are known: what made no configuration is impossible.
        earlier = ((row["configuration"], row["numbers"]) for row in draft.list_proposals())
        nothing = [numbers for made, numbers in (*earlier, *draft.proposed) if made is None]
        known.impossible = self.impossible(nothing)

    def _draw(self, planner: Planner, proposals: Proposals, known: Forecast) -> None:
        """Add the first round of each proposal that is a new configuration."""
        while planner.search.has_more() and (configuration := proposals.ask()):
            is_new = configuration.key not in planner.study_run.states
            state = planner.study_run.add(configuration)
            if is_new and (first := planner.study_run.first_round(state)):
                known.add([first], 1)

    def _bound(self, planner: Planner, remaining: int, known: Forecast) -> None:
        """Note the most that so many proposals may add, and by points at random how many are impossible."""
        sizes = [len(field.values()) for field in self.space.values()]  # 0 for a continuum
        is_finite = all(sizes)
        left = prod(sizes) - len(planner.study_run.states) if is_finite else remaining
        new = max(0, min(remaining, left))
        seeds = new * len(self.first_seeds)
        # They cost as the base does: nobody knows yet what the sampler will propose.
        known.search[Configuration(*self.base)] += seeds
        known.asked += seeds
        known.configurations += new
        known.proposals += remaining

        chance = Random(0)
        tried = [numbers_by(self.space, lambda _, field: field.draw(chance)) for _ in range(DRAWN)]
        known.impossible = self.impossible(tried)
        known.tried = DRAWN
        known.is_random = True
        # A child of nsga2 may be its parent again; of a continuum no other sampler draws a point twice.
        known.is_bound = self.sampler.name == "nsga2" or is_finite or bool(known.impossible)

    def describe_count(self, known: Forecast) -> str:
        """Return how many configurations the search comes to, and why they are fewer than its proposals."""
        name = self.sampler.name
        count = known.configurations
        noun = "points" if name == "grid" else "proposals"
        if known.is_random:
            noun = "random points"
        else:
            count += len(known.impossible)

        if count == known.proposals:
            text = f"{count:,}, proposed by {name}"
        else:
            text = f"{'up to ' * known.is_bound}{count:,}, of {known.proposals:,} proposals by {name}"
        remark = impossible_remark(known.impossible, known.tried, noun)
        return f"{text}; {remark}" if remark else text

    def describe_models(self) -> str:
        """Return each family with its numbers of parameters: where the model is searched, the ends."""
        paths = {path for path in self.space if not path.startswith("recipe.")}
        if not paths:
            return super().describe_models()

        paths |= {other for path in paths for other in conditions(self.space, path)}
        model = {path: self.space[path] for path in self.space if path in paths}
        value = fixed(self.study.base_spec, self.study.base_recipe)
        specs: list[Spec] = []
        for numbers in corners(model):
            with suppress(ValueError):  # impossible
                spec, _ = self.study.configuration(resolve(model, numbers, value))
                specs.append(spec)
        return describe_sizes(specs or [self.study.base_spec], 1)

    def plan_search(self) -> list[str]:
        lines: list[str] = []
        for path, field in self.space.items():
            head = "" if lines else "space"
            lines.append(f"  {head:15} {path}: {describe(field)}{self._remark(path)}")
        return [*lines, f"  sampler         {self.proposer}", f"  sought          {self.goal}"]

    def _remark(self, path: str) -> str:
        """Return what is odd about a field: it changes nothing, or may lie beyond the longest budget; else nothing."""
        recipe = self.study.base_recipe
        if path in CARRY_MIX and recipe.carry_shares:
            return "; changes nothing beside carry_shares"
        if path not in IN_STEPS:
            return ""
        most = max(self.space[path].ends())
        budget = self.longest_budget(recipe)
        return f"; {most:,} is beyond the budget, {budget:,} steps" if most > budget else ""

    # ---- its results

    def write_proposals(self, records: StudyRecords, file: Path) -> int:
        from search.kinds.proposals import write_study

        return write_study(self.study, records, file)

    def summary(self, records: StudyRecords) -> list[str]:
        """Return a line on proposals that are impossible, and one on those that repeat a configuration."""
        proposals = records.list_proposals()
        keys = [proposal["configuration"] for proposal in proposals if proposal["configuration"]]
        without = [proposal["numbers"] for proposal in proposals if not proposal["configuration"]]
        lines = []
        remark = impossible_remark(self.impossible(without), len(proposals), "proposals")
        if remark:
            lines.append(f"  {remark}")
        repeated = len(keys) - len(set(keys))
        if repeated:
            lines.append(f"  {repeated:,} of {len(proposals):,} proposals came to an earlier one's configuration")
        return lines
