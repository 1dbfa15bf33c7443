"""Stages: a recipe of several trainings, each of a smaller net than the one before. Fields of a recipe.

Training begins with a net that has more parts than it shall have in the end. A stage trains it, drops parts of it, or
moves it into a smaller model, by a ramp. Where there are several ways to do so it tries those that keep most of what
the net can do, and hands on the first that groks. Before a stage the net may be rewritten as another
model that computes the same.

Axes: W way, P entries of θ.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import comb, factorial
from typing import TYPE_CHECKING, Any

from model.fields import did_you_mean, option
from model.parts import NoParts, count_of, inside, keep, only, orders
from model.presets import preset
from model.spec import Spec, family_of, make_spec, no_family
from model.tied import Ties, project, selection_matrix, ties_of
from model.transfer import transfer
from model.trust import Untrusted
from trainer.fields import Group

if TYPE_CHECKING:
    from torch import Tensor

    Losses = Callable[[Tensor], Tensor]
    """From θ [W, P] of the spec that a stage trains: the loss of each on the selection problems."""

Recipe = Any
"""A recipe, which has these fields among others."""
MOST_STAGES = 12
ENOUGH = 0.95
LONGEST_NAME = 64
MOST_WAYS = 50_000
"""Of narrowing a net: 8! orders are 40,320."""
KEYS = ("name", "model", "keep", "into", "tries", "recipe", "longer", "longer_tries", "enough")


class Values(dict[str, Any]):
    """Plain values by name, which do not change: what holds them can be hashed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(json.dumps(self, sort_keys=True))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stages(Group):
    """A recipe with stages trains a seed through all of them; its other fields are what they have in common."""

    stages: tuple[Values, ...] = option(
        (),
        "trainings one after another, each of a smaller net, which has the fields of this recipe but for its own "
        "(docs/studies.md); with `steps` spent, all tries counted, no further training of a seed begins",
        unit="name, model, keep, into, tries, recipe, longer, longer_tries, enough",
        max_length=MOST_STAGES,
        entries="stages",
    )

    @staticmethod
    def validate(recipe: Any) -> None:
        if recipe.stages:
            names = [field.name for field in dataclasses.fields(recipe)]
            rows = tuple(_checked(row, n, names) for n, row in enumerate(recipe.stages))
            object.__setattr__(recipe, "stages", rows)
            # A record may keep what was a part in an earlier version: whoever trains it is told (`check_road`).
            with suppress(NoParts):
                road_of(recipe)


def _check_place(row: Any, n: int) -> None:
    """Raise ValueError unless a row of `stages` has a name and may be the n-th."""
    if not isinstance(row, Mapping) or not isinstance(row.get("name"), str):
        raise ValueError(f"stages[{n}] must be a mapping with a name, got {row!r:.80}")
    if not 0 < len(row["name"]) <= LONGEST_NAME or not row["name"].isprintable():
        raise ValueError(f"stages[{n}].name must be a line of up to {LONGEST_NAME} characters, got {row['name']!r:.80}")
    if n == 0 and ("keep" in row or "into" in row):
        raise ValueError("stages[0]: the first stage trains its model as it is; keep and into are for later ones")


def _checked(row: Any, n: int, names: Sequence[str]) -> Values:
    """Return a row of `stages` with its models spelt out. Raises ValueError for one of another form.

    names: the fields of a recipe.
    """
    # All types are checked: a row is a stranger's, and would else fail far from here, in another's words.
    _check_place(row, n)
    for key in row:
        if key not in KEYS:
            raise ValueError(f"stages[{n}]: unknown {key!r:.80}; {did_you_mean(key, KEYS)}")
    for key in ("recipe", "longer"):
        if not isinstance(row.get(key, {}), Mapping):
            raise ValueError(f"stages[{n}].{key} must be fields of a recipe, got {row[key]!r:.80}")
        if "stages" in row.get(key, {}):
            raise ValueError(f"stages[{n}].{key}: a stage has no stages of its own")
        for name in row.get(key, {}):
            if name not in names:
                raise ValueError(f"stages[{n}].{key}.{name!s:.80}: unknown field; {did_you_mean(name, names)}")
    for key in ("tries", "longer_tries"):
        count = row.get(key, 1)
        if type(count) is not int or not 1 <= count <= 100:
            raise ValueError(f"stages[{n}].{key} must be from 1 to 100, got {count!r:.80}")
    enough = row.get("enough", ENOUGH)
    if type(enough) not in (int, float) or not 0 <= enough <= 1:
        raise ValueError(f"stages[{n}].enough must be from 0 to 1, got {enough!r:.80}")
    if "model" not in row and n == 0:
        raise ValueError("stages[0].model: the first stage says its model")
    # Spelt out, so that a preset's name and its fields are one recipe, with one key.
    named = [key for key in ("model", "into") if key in row]
    models = {key: spec_of(row[key], f"stages[{n}].{key}").as_dict() for key in named}
    return Values(_plain({**row, **models}, n))


def _plain(row: dict[str, Any], n: int) -> dict[str, Any]:
    """Return a row that JSON can hold, as keys and records do. Raises ValueError for another."""
    try:
        json.dumps(row, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"stages[{n}] must be plain values: {error}") from None
    return row


def spec_of(value: Any, path: str) -> Spec:
    """Return the spec of a preset's name, of a preset with changes, of a family with its fields, or of a module.

    Raises ValueError, which begins with the path, for a value that is none.
    """
    try:
        if isinstance(value, str):
            return preset(value)
        if not isinstance(value, Mapping):
            raise ValueError(f"must be a preset or a mapping, got {value!r:.80}")
        changed = {key: v for key, v in value.items() if key != "preset"}
        if "preset" in value:
            if not isinstance(value["preset"], str):
                raise ValueError(f"preset must be a name, got {value['preset']!r:.80}")
            return make_spec(**{**preset(value["preset"]).as_dict(), **changed})
        family = family_of(changed)
        if family is None:
            raise no_family(changed)
        return make_spec(**{"family": family, **changed})
    except Untrusted:
        raise  # which --trust is for
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


@dataclass(frozen=True)
class Try:
    """One training of a stage. start: its θ [P], drawn by the seed if None. words: which parts stay, in their order."""

    start: Tensor | None = None
    ties: Ties | None = None
    words: str = ""


@dataclass(frozen=True)
class Whole:
    """Train the net as it is."""

    def hands_on(self, spec: Spec) -> Spec:
        """Return the spec that the stage leaves. Raises ValueError if a spec cannot be narrowed so."""
        return spec

    def check(self, spec: Spec) -> None:
        """Raise ValueError if a net of a spec cannot be narrowed so. May need torch."""

    def tries(self, spec: Spec, theta_P: Tensor, losses: Losses, most: int) -> list[Try]:
        """Return the ways to train on from θ, the best first. most: their number at most."""
        return [Try(theta_P)]

    def reduced(self, spec: Spec, trained: Try, theta_P: Tensor) -> Tensor:
        """Return θ of the spec that the stage leaves."""
        return theta_P


@dataclass(frozen=True)
class Keep(Whole):
    """Keep some parts of a kind, and ramp the others to zero.

    The best ones to keep are those that leave the net the least loss when the others are cut.
    """

    kind: str
    count: int

    def hands_on(self, spec: Spec) -> Spec:
        total = count_of(spec, self.kind)
        if not 0 < self.count < total:
            raise ValueError(f"of {total} {self.kind} a stage keeps fewer, but at least one; got {self.count}")
        if comb(total, self.count) > MOST_WAYS:
            raise ValueError(
                f"to keep {self.count} of {total} {self.kind} there are too many ways: keep them in two stages"
            )
        return keep(spec, self.kind, range(self.count))[0]

    def check(self, spec: Spec) -> None:
        import torch

        parts = range(self.count)
        smaller, index = keep(spec, self.kind, parts)
        smaller.check_asked()
        is_kept_P = torch.tensor(only(spec, self.kind, parts)) != 0
        # Of several seeds, since a unit of one may be off; and a little more, since what begins at zero hides parts.
        drawn_SP = torch.stack([spec.initial(seed) for seed in range(4)])
        theta_SP = drawn_SP + torch.linspace(0, 0.1, spec.params)
        if not smaller.answers_as(theta_SP[:, index], spec, theta_SP * is_kept_P):
            raise ValueError(f"with fewer {self.kind} the net must compute what it does with the others at zero")

    def tries(self, spec: Spec, theta_P: Tensor, losses: Losses, most: int) -> list[Try]:
        import torch

        total = count_of(spec, self.kind)
        ways = list(itertools.combinations(range(total), self.count))
        ties = [only(spec, self.kind, way) for way in ways]
        is_kept_WP = torch.tensor(ties) != 0
        # Cut at once, without training: what the others do now is the best guess of what they are worth.
        loss_W = losses(theta_P * is_kept_WP).tolist()
        ranked = sorted(range(len(ways)), key=loss_W.__getitem__)
        return [Try(theta_P, ties[w], "-".join(map(str, ways[w]))) for w in ranked[:most]]

    def reduced(self, spec: Spec, trained: Try, theta_P: Tensor) -> Tensor:
        parts = [int(part) for part in trained.words.split("-")]
        return theta_P[keep(spec, self.kind, parts)[1]]


@dataclass(frozen=True)
class Into(Whole):
    """Become a spec that is the net with ties.

    Before that the net's parts may trade places, and the net may become its mirror image: the same function of a
    problem, at another distance from the ties. Not so units whose second layer is the head, which stays where it is
    (tie_fc2_head): their other order is another net. The best way is the one in which the ties cost the least loss.
    """

    target: Spec

    def hands_on(self, spec: Spec) -> Spec:
        _check_kin(spec, self.target)
        orders_of_parts = sum(factorial(count_of(spec, kind)) for kind in spec.parts)
        if orders_of_parts > MOST_WAYS:
            raise ValueError("its parts have too many orders: keep fewer of them first")
        return self.target

    def check(self, spec: Spec) -> None:
        inside(spec, self.target)

    def tries(self, spec: Spec, theta_P: Tensor, losses: Losses, most: int) -> list[Try]:
        import torch

        ties, _ = inside(spec, self.target)
        order_OP = torch.tensor(list(orders(spec)))
        theta_WP = torch.cat([own_P[order_OP] for own_P in (theta_P, *spec.images(theta_P))])
        matrix_RP = selection_matrix(ties).to(theta_P.dtype)
        loss_W = losses(project(ties, theta_WP) @ matrix_RP).tolist()
        ranked = sorted(range(len(theta_WP)), key=loss_W.__getitem__)
        return [Try(theta_WP[w], ties, str(w)) for w in ranked[:most]]

    def reduced(self, spec: Spec, trained: Try, theta_P: Tensor) -> Tensor:
        import torch

        ties, order = inside(spec, self.target)
        (numbers_R,) = project(ties, theta_P[None])
        # `order` has, for each number, its place in the target's θ.
        theta_R = torch.empty_like(numbers_R)
        theta_R[list(order)] = numbers_R
        return theta_R


def _check_kin(spec: Spec, other: Spec) -> None:
    """Raise ValueError unless two specs are of one family, or one class, and asked the same task."""
    kinds = [ties_of(each)[0].label for each in (spec, other)]
    if len(set(kinds)) > 1:
        raise ValueError(f"a {kinds[0]} does not become a {kinds[1]}")
    if spec.task != other.task:
        raise ValueError(f"a net that is asked {spec.task.title} does not become one of {other.task.title}")


@dataclass(frozen=True)
class Stage:
    """One stage of a road.

    spec: what it trains. narrows: what it does to the net. tries: how many ways it tries side by side. longer: what
    follows if none of them has grokked: a net that is trained as it is goes on from its best θ; others begin again, in
    `longer_tries` ways from every net that grokked in the stage before. enough: share of the selection problems with
    which the best net goes on where none has grokked. arrives: what the stage before leaves, if that is rewritten.
    """

    name: str
    spec: Spec
    recipe: Recipe
    narrows: Whole = Whole()
    tries: int = 1
    longer: Recipe | None = None
    longer_tries: int = 1
    enough: float = ENOUGH
    arrives: Spec | None = None

    def entered(self, theta_P: Tensor) -> Tensor:
        """Return θ of the stage's spec from that of the spec that arrives (model/transfer.py)."""
        return transfer(self.arrives, theta_P, self.spec).theta_Q if self.arrives else theta_P

    @property
    def recipes(self) -> list[Recipe]:
        """Its own and its longer recipe."""
        return [self.recipe, self.longer] if self.longer else [self.recipe]


@lru_cache(64)
def road_of(recipe: Recipe) -> tuple[Stage, ...]:
    """Return the stages of a recipe, each with the spec that the one before leaves. Needs no torch.

    Raises ValueError where they do not follow one another.
    """
    # Without stages, or the recipe of a stage would have all of them again.
    plain = dataclasses.replace(recipe, stages=())
    stages: list[Stage] = []
    for n, row in enumerate(recipe.stages):
        arrives = end_of(stages) if stages else None
        try:
            stages.append(_stage(row, arrives, plain))
        except Untrusted:
            raise
        except (TypeError, ValueError) as error:
            kind = NoParts if isinstance(error, NoParts) else ValueError
            raise kind(f"stages[{n}]: {error}") from None

    longest = max((each.steps for stage in stages for each in stage.recipes), default=0)
    if longest > recipe.steps:
        raise ValueError(f"steps must be at least those of any stage ({longest:,}): all tries of a seed are counted")
    # A seed's record has its stages by name.
    names = [stage.name for stage in stages]
    if len(set(names)) < len(names):
        raise ValueError(f"stages must have names of their own, got {', '.join(names)}")
    return tuple(stages)


def _stage(row: Values, arrives: Spec | None, plain: Recipe) -> Stage:
    """Return a row as a stage. arrives: what the stage before leaves."""
    spec = spec_of(row["model"], "model") if "model" in row else arrives
    assert spec, "the first stage says its model"
    if arrives:
        _check_kin(arrives, spec)
    if arrives and arrives.trained() == spec.trained():
        arrives = None  # nothing is rewritten
    recipe = dataclasses.replace(plain, **row.get("recipe", {}))
    longer = dataclasses.replace(recipe, **row["longer"]) if "longer" in row else None

    narrows = _narrowing(row)
    narrows.hands_on(spec)  # raises what is wrong with it
    is_narrowing = type(narrows) is not Whole
    if not is_narrowing and not row.keys().isdisjoint(("tries", "longer_tries")):
        raise ValueError("a net that is trained as it is has one way: tries are of keep and into")
    for each in filter(None, (recipe, longer)):
        if is_narrowing and not each.ramp:
            raise ValueError("a net is narrowed by a ramp, and the recipe has none")
        if each.ramp and not is_narrowing:
            raise ValueError("a ramp needs something to narrow to: keep or into")
    numbers = {key: row[key] for key in ("tries", "longer_tries", "enough") if key in row}
    return Stage(row["name"], spec, recipe, narrows, longer=longer, arrives=arrives, **numbers)


def _narrowing(row: Values) -> Whole:
    if "keep" in row and "into" in row:
        raise ValueError("keep and into are two stages")
    if "into" in row:
        return Into(spec_of(row["into"], "into"))
    if "keep" not in row:
        return Whole()
    kept = row["keep"]
    is_one = isinstance(kept, Mapping) and len(kept) == 1
    if not is_one or not all(type(count) is int for count in kept.values()):
        raise ValueError(f"keep must say what and how many, as in {{units: 2}}, got {kept!r:.80}")
    ((kind, count),) = kept.items()
    return Keep(kind, count)


def check_stages(recipe: Recipe) -> None:
    """Raise ValueError if some stage cannot narrow its net as it says. Needs torch where one narrows."""
    for stage in road_of(recipe):
        try:
            stage.narrows.check(stage.spec)
        except ValueError as error:
            raise ValueError(f"stage {stage.name}: {error}") from None


def end_of(stages: Sequence[Stage]) -> Spec:
    """Return the spec at which a road ends."""
    return stages[-1].narrows.hands_on(stages[-1].spec)
