"""Which constraints go together? A logistic model of the grok rate over recorded combinations of constraints.

A lattice is what was recorded of one study with one recipe: specs that differ in constraints alone. Its model has an
effect for each constraint and one for each pair, in log odds. A pair's is what the two together do beyond the sum of
both. Constraints are coded -1/2 and 1/2: the effect of one is an average, the others being on as often as off.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

from model.fields import spelt
from reports.arms import Arm, read_arms
from reports.logistic import Coefficient, fit
from reports.ratios import discoveries
from reports.table import row_order
from search.stats.record import SeedRecord

if TYPE_CHECKING:
    import numpy as np

FEWEST = 2  # constraints and seeds of a lattice
MOST_NAMES = 2  # that a list shows before it counts the others
TINY = 1e-9  # of a difference of levels
WORDS = {1: ("costs", "helps"), 2: ("worse than the sum", "better than the sum")}
OPEN, NOT_ESTIMABLE = "open", "not estimable"
Term = tuple[int, ...]
"""Places of one or two constraints."""


@dataclass(frozen=True)
class Lattice:
    """Combinations of constraints that one study trained with one recipe.

    levels: for each arm, True for each constraint that it has. also: fields that change together with a constraint.
    """

    study: str
    constraints: tuple[str, ...]
    arms: tuple[Arm, ...]
    levels: tuple[tuple[bool, ...], ...]
    also: Mapping[str, tuple[str, ...]]

    @property
    def finishes(self) -> bool:
        return self.arms[0].finishes

    @property
    def counts(self) -> list[tuple[int, int]]:
        """Grokked and counted seeds by arm. Those that a rule ended count as not grokked."""
        return [(sum(arm.seeds.values()), len(arm.seeds)) for arm in self.arms]

    @property
    def neighbours(self) -> dict[str, list[tuple[int, int]]]:
        """Arms without and with each constraint that differ in it alone."""
        places = {levels: place for place, levels in enumerate(self.levels)}
        return {
            name: [
                (place, partner)
                for levels, place in places.items()
                if not levels[i]
                if (partner := places.get((*levels[:i], True, *levels[i + 1 :]))) is not None
            ]
            for i, name in enumerate(self.constraints)
        }

    def outcomes(self, *, finished: bool = False) -> np.ndarray:
        """Return 1 and 0 by arm and seed, NaN where a seed is not recorded. finished: counting those of curvature."""
        import numpy as np

        by_arm = [arm.with_finished if finished else arm.seeds for arm in self.arms]
        seeds = sorted({seed for grokked in by_arm for seed in grokked})
        return np.array([[float(grokked.get(seed, math.nan)) for seed in seeds] for grokked in by_arm])


@dataclass(frozen=True)
class Effect:
    """What one constraint does to the odds of grokking, or two together beyond the sum of both.

    coefficient: None where `reason` says why it cannot be estimated. finished: the same with the seeds that curvature
    finished. mixed_with: pairs that these combinations cannot tell from it. counts: grokked and counted seeds
    without the constraint and with it; of a pair with neither, the first alone, the second alone, both.
    """

    constraints: tuple[str, ...]
    counts: tuple[tuple[int, int], ...]
    coefficient: Coefficient | None = None
    finished: Coefficient | None = None
    reason: str = ""
    mixed_with: tuple[str, ...] = ()
    is_discovery: bool = False
    """True if it is left at a false discovery rate of 5 % among the effects, or among the pairs."""

    @property
    def name(self) -> str:
        return " × ".join(self.constraints)

    @property
    def verdict(self) -> str:
        if self.coefficient is None:
            return NOT_ESTIMABLE
        if not self.is_discovery:
            return OPEN
        return WORDS[len(self.constraints)][self.coefficient.estimate > 0]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, None if unknown."""
        first, second = (*self.constraints, None)[:2]
        names = ("without", "with") if second is None else ("neither", "first", "second", "both")
        counted = dict(zip(names, self.counts, strict=True))
        cells = {
            f"{part}_{name}": counted[name][i] if name in counted else None
            for name in ("without", "with", "neither", "first", "second", "both")
            for i, part in enumerate(("grokked", "n"))
        }
        return {
            "constraint": first, "with_constraint": second, "verdict": self.verdict,
            **_odds("odds_ratio", self.coefficient), "p": self.coefficient and self.coefficient.p,
            **_odds("odds_ratio_finished", self.finished),
            "reason": self.reason or None, "mixed_with": ", ".join(self.mixed_with) or None, **cells,
        }  # fmt: skip


def _odds(name: str, coefficient: Coefficient | None) -> dict[str, float | None]:
    values = coefficient.odds_ratio if coefficient else (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


@dataclass(frozen=True)
class Interactions:
    """The model of a lattice: the effects of its constraints, and those of their pairs."""

    lattice: Lattice
    effects: tuple[Effect, ...]
    pairs: tuple[Effect, ...]

    @property
    def has_pairs(self) -> bool:
        """True if the combinations say something about some pair."""
        return any(pair.coefficient for pair in self.pairs)

    def tidy(self) -> list[dict[str, Any]]:
        """Return one row an effect, then one a pair (`Effect.as_dict`), each with the study."""
        study = {"study": self.lattice.study}
        return [study | effect.as_dict() for effect in (*self.effects, *self.pairs)]


# Lattices


def lattices(configurations: Sequence[Mapping[str, Any]], seeds: Iterable[SeedRecord]) -> list[Lattice]:
    """Return the lattices among recorded configurations, the largest first: rows as search.analysis.frames has them.

    They have two constraints or more. Seeds that are not recorded one by one are left out.
    """
    groups: dict[tuple[Any, ...], list[Arm]] = {}
    for arm in read_arms(configurations, seeds):
        if arm.seeds:
            sizes = {k: v for k, v in arm.spec.as_dict().items() if k not in arm.spec.constraints()}
            groups.setdefault((arm.study, arm.recipe, *sizes.items()), []).append(arm)
    large = [lattice for arms in groups.values() if len((lattice := _lattice(arms)).constraints) >= FEWEST]
    return sorted(large, key=lambda lattice: (-len(lattice.arms), lattice.study, lattice.constraints))


def _lattice(arms: Sequence[Arm]) -> Lattice:
    applied = [arm.spec.applied().items() for arm in arms]
    columns: dict[tuple[bool, ...], list[str]] = {}
    for constraint in sorted({c for items in applied for c in items}, key=row_order):
        column = tuple(constraint in items for items in applied)
        if len(set(column)) > 1:  # what is always on when another is off says the same as that
            columns.setdefault(min(column, tuple(not has for has in column)), []).append(spelt(*constraint))
    names = {group[0]: tuple(group[1:]) for group in columns.values()}
    values = {name: [name in {spelt(*c) for c in items} for items in applied] for name in names}
    return Lattice(
        study=arms[0].study,
        constraints=tuple(names),
        arms=tuple(arms),
        levels=tuple(zip(*values.values(), strict=True)),
        also={name: others for name, others in names.items() if others},
    )


# The model


def interactions(lattice: Lattice) -> Interactions:
    """Return the model of a lattice. A seed grokked if training alone made it; `finished` has curvature's too."""
    outcomes_CS, names = lattice.outcomes(), lattice.constraints
    plan = _Plan.of(lattice, outcomes_CS)
    coefficients, finished = plan.estimates(outcomes_CS), {}
    if lattice.finishes:
        with_finished_CS = lattice.outcomes(finished=True)
        finished = _Plan.of(lattice, with_finished_CS).estimates(with_finished_CS)

    def effects(size: int) -> tuple[Effect, ...]:
        parts = [
            Effect(
                constraints=tuple(names[i] for i in term),
                counts=_counts(lattice, outcomes_CS, term),
                coefficient=coefficients.get(term),
                finished=finished.get(term),
                reason=plan.reasons.get(term, ""),
                mixed_with=tuple(_name(lattice, other) for other in plan.mixed.get(term, ())),
            )
            for term in combinations(range(len(names)), size)
        ]
        believed = iter(discoveries([e.coefficient.p for e in parts if e.coefficient]))
        return tuple(replace(e, is_discovery=next(believed)) if e.coefficient else e for e in parts)

    return Interactions(lattice, effects(1), effects(2))


def _name(lattice: Lattice, term: Term) -> str:
    return " × ".join(lattice.constraints[i] for i in term) or "the mean"


def some(names: Iterable[str]) -> str:
    """Return names as a list, and how many more there are behind the first ones."""
    listed = list(names)
    more = len(listed) - MOST_NAMES
    return ", ".join(listed) if more < 2 else f"{', '.join(listed[:MOST_NAMES])} and {more} more"


def _counts(lattice: Lattice, outcomes_CS: np.ndarray, term: Term) -> tuple[tuple[int, int], ...]:
    """Return grokked and counted seeds by the levels of one or two constraints, in the order of `Effect.counts`."""
    import numpy as np

    levels = np.array([[row[i] for i in term] for row in lattice.levels])
    patterns = [pattern[::-1] for pattern in product((False, True), repeat=len(term))]
    cells = [outcomes_CS[(levels == pattern).all(1)] for pattern in patterns]
    return tuple((int(np.nansum(cell)), int((~np.isnan(cell)).sum())) for cell in cells)


@dataclass(frozen=True)
class _Plan:
    """What a lattice's combinations can tell apart: columns of the model by term, () being the mean.

    reasons: why other terms cannot be estimated. mixed: terms of which a column is a combination.
    """

    columns: Mapping[Term, np.ndarray]
    reasons: Mapping[Term, str]
    mixed: Mapping[Term, Sequence[Term]]

    @classmethod
    def of(cls, lattice: Lattice, outcomes_CS: np.ndarray) -> _Plan:
        import numpy as np

        levels_CF = np.array(lattice.levels) - 0.5
        terms: list[Term] = [(i,) for i in range(len(lattice.constraints))]
        if one_sided := _one_sided(lattice, outcomes_CS, ()):
            return cls({}, dict.fromkeys([*terms, *combinations(range(len(terms)), 2)], one_sided), {})
        effects = {(): np.ones(len(levels_CF)), **{term: levels_CF[:, term[0]] for term in terms}}
        reasons: dict[Term, str] = {}
        shorter = _shorter(effects)
        for term in terms:
            if others := _alike(shorter, term):
                reasons[term] = f"cannot be told from {some(_name(lattice, t) for t in others)}"
        columns = dict(effects)
        for a, b in combinations(range(len(terms)), 2):
            one_sided = _one_sided(lattice, outcomes_CS, (a,)) or _one_sided(lattice, outcomes_CS, (b,))
            if reason := _missing_corner(lattice, a, b) or one_sided:
                reasons[a, b] = reason
            else:
                columns[a, b] = levels_CF[:, a] * levels_CF[:, b]
        shorter = _shorter(columns)
        mixed = {term: others for term in columns if term and (others := _alike(shorter, term))}
        for term in mixed:
            if len(term) == 2:
                reasons[term] = f"cannot be told from {some(_name(lattice, t) for t in mixed[term])}"
        return cls(columns, reasons, mixed)

    def estimates(self, outcomes_CS: np.ndarray) -> dict[Term, Coefficient]:
        """Return the coefficients of what can be estimated.

        Of columns that can be told apart as a group alone as many are in the model as are independent, so that
        they do not bias the others. An effect among them is of a model without the pairs among them.
        """
        if not self.columns or outcomes_CS.shape[1] < FEWEST:
            return {}
        plain = [t for t in self.columns if len(t) < 2 or t not in self.mixed]
        with_all, without = (self._fit(terms, outcomes_CS) for terms in (list(self.columns), plain))
        estimated = {**with_all, **{t: c for t, c in without.items() if t in self.mixed}}
        return {t: c for t, c in estimated.items() if t and t not in self.reasons}

    def _fit(self, candidates: Sequence[Term], outcomes_CS: np.ndarray) -> dict[Term, Coefficient]:
        """Return the coefficients of as many terms as are independent, effects and terms of their own first."""
        import numpy as np

        terms: list[Term] = []
        shorter = _shorter({term: self.columns[term] for term in candidates})
        for term in sorted(candidates, key=lambda t: (len(t), t in self.mixed)):
            matrix = np.column_stack([shorter[t] for t in (*terms, term)])
            if np.linalg.matrix_rank(matrix) > len(terms):
                terms.append(term)
        fitted = fit(np.column_stack([self.columns[t] for t in terms]), outcomes_CS)
        return dict(zip(terms, fitted, strict=True))


def _one_sided(lattice: Lattice, outcomes_CS: np.ndarray, term: Term) -> str:
    """Return why nothing is to be compared: all in all, or at a level of one constraint, none or all grokked."""
    sides = ("without", "with") if term else ("",)
    for side, (grokked, n) in zip(sides, _counts(lattice, outcomes_CS, term), strict=True):
        if grokked in (0, n):
            where = f" {side} {_name(lattice, term)}" if term else ""
            return f"{'every' if grokked else 'no'} seed grokked{where}"
    return ""


def _missing_corner(lattice: Lattice, a: int, b: int) -> str:
    """Return which of the four kinds of combinations of two constraints is not there; empty if all are."""
    first, second = lattice.constraints[a], lattice.constraints[b]
    corners = {
        (False, False): f"no combination is without {first} and {second}",
        (True, False): f"no combination has {first} without {second}",
        (False, True): f"no combination has {second} without {first}",
        (True, True): f"no combination has {first} and {second}",
    }
    there = {(row[a], row[b]) for row in lattice.levels}
    return next((text for corner, text in corners.items() if corner not in there), "")


def _shorter(columns: Mapping[Term, np.ndarray]) -> dict[Term, np.ndarray]:
    """Return columns that depend on each other as these do, of at most as many rows as there are columns."""
    import numpy as np

    triangle = np.linalg.qr(np.column_stack(list(columns.values()))).R
    return dict(zip(columns, triangle.T, strict=True))


def _alike(columns: Mapping[Term, np.ndarray], term: Term) -> tuple[Term, ...]:
    """Return the terms of which a column is a combination; none if it depends on no other."""
    import numpy as np

    others = [t for t in columns if t != term]
    matrix = np.column_stack([columns[t] for t in others])
    weights, *_ = np.linalg.lstsq(matrix, columns[term], rcond=None)
    if np.abs(matrix @ weights - columns[term]).max() > TINY:
        return ()
    return tuple(t for t, weight in zip(others, weights, strict=True) if abs(weight) > TINY)
