"""A study of every combination of some constraints: a lattice of specs over one model."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from pydantic import Field

from model import Spec
from search.stats.factorial import nested_fractions
from search.study.kind import Asked, Kind
from search.study.space import Strict, error_at, errors_at, refuse
from search.study.spelling import constraint_of, validated_pair
from search.study.trial import Configuration

MOST_COMBINED = 10  # constraints; 1,024 combinations
Constraint = tuple[str, Any]
"""Name and value."""


class Keys(Strict):
    combine: list[str] = Field(
        default_factory=list,
        max_length=MOST_COMBINED,
        description="the model with every combination of these constraints, each on or off: tie_vo, qk_dim=4",
    )


class Combine(Kind):
    """The study's model with every combination of constraints."""

    asked_by = ("combine",)
    keys = Keys
    says_sizes = True

    def check_alone(self) -> None:
        study = self.study
        refuse(
            (study.space, "combine: a study has a list of configurations or a space, not both"),
            (study.configurations or study.toggle, "combine: goes with one model: no configurations or toggle"),
        )

    @cached_property
    def spelled_out(self) -> list[Asked]:
        recipe = self.study.base_recipe
        specs = combinations(self.study.base_spec, self.study.combine)
        return [validated_pair(spec, recipe, "recipe") for spec in specs]

    def describe_count(self, known: Any) -> str:
        count = 2 ** len(self.study.combine)
        text = f"{len(self.listed)}, of {count} combinations; the others are impossible or equal to one of these"
        is_repeated = self.planned > len(self.listed)
        return f"{text}; {self.planned} with each θ to start from" if is_repeated else text

    def _words_of(self, configuration: Configuration) -> str:
        applied = configuration.spec.applied()
        names = (name.partition("=")[0] for name in self.study.combine)
        return " + ".join(name for name in names if name in applied) or "none of them"


def combinations(spec: Spec, names: Sequence[str]) -> list[Spec]:
    """Return the specs that differ from `spec` in these constraints alone, written as `tie_vo` or `qk_dim=4`.

    They come in the order of a fractional factorial design (`nested_fractions`). A constraint is applied with
    what it needs and without what it excludes. Combinations that are impossible are left out. Of those that
    read θ alike (a constraint may do nothing beside another) the one most like `spec` is in, at the place of the
    first.

    Raise ValueError at a key path, for a constraint that is unknown, repeated, or saves nothing here, or that the model
    has with another value.
    """
    constraints = [constraint_of(spec, name, f"combine.{i}") for i, name in enumerate(names)]
    bare = _without(spec, constraints)  # what the model has of them is a combination too
    for i, (name, value) in enumerate(constraints):
        if name in dict(constraints[:i]):
            raise error_at(f"combine.{i}", f"{name} is combined already")
        alone = _applied(bare, [(name, value)])
        if not alone or alone.params >= bare.params:
            raise error_at(f"combine.{i}", f"{names[i]} takes no parameters away from this model")

    # In this order a study that is stopped early has the main effects apart.
    of_model = {constraint for constraint in constraints if constraint in spec.applied().items()}
    alike: dict[Spec, tuple[int, Spec]] = {}
    for run in nested_fractions(len(constraints)):
        applied = [constraint for i, constraint in enumerate(constraints) if run >> i & 1]
        combined = _applied(bare, applied)
        own = combined.applied().items() if combined else ()
        # Impossible, or another combination, which has its own run: one may need or exclude another.
        if not combined or [constraint for constraint in constraints if constraint in own] != applied:
            continue
        distance = len(of_model.symmetric_difference(applied))
        key = combined.trained()
        nearest, _ = alike.setdefault(key, (distance, combined))
        if distance < nearest:
            alike[key] = distance, combined
    return [combined for _, combined in alike.values()]


def _without(spec: Spec, constraints: Sequence[Constraint]) -> Spec:
    """Return the spec with none of the constraints. Raise ValueError at a key path."""
    for i, (name, _) in enumerate(constraints):
        with errors_at(f"combine.{i}"):
            spec = spec.without(name)
    return spec


def _applied(spec: Spec, constraints: Sequence[Constraint]) -> Spec | None:
    """Return the spec with all of the constraints; None if one of them is impossible there."""
    try:
        for name, value in constraints:
            spec = spec.constrained(name, value)
    except ValueError:
        return None
    return spec
