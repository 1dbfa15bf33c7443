"""A study file: the keys that all studies have, and what they mean. search/study/file.py reads the file.

The keys of a kind of study are in its file (search/study/kind.py). Every field says what it counts.
"""

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, create_model, field_validator, model_validator

from model import Spec, preset
from model.spec import family_class
from model.tied import Tied
from search.study.kind import Asked, Kind, kind_of, kinds
from search.study.reading import Data
from search.study.resources import CPU_SLOTS, Faults, Resources
from search.study.seeds import Allocation, Confirm, SeedCross, Seeds, Until, check_numbers, seed_list
from search.study.space import LARGEST_SEED, Numbers, Strict, error_at, fixed, refuse, resolve
from search.study.spelling import asked_spec, model_options, recipe_of, validated_pair
from search.study.start import StartSpec
from search.study.stopping import Stop
from trainer import Recipe, Seed

MOST_WATCHED = 64
LONGEST_NAME = 64
NAMED_BY = "letters (a to z), digits, dots, dashes or underscores"
NAME = rf"^[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_NAME - 1}}}$"


def is_name(text: str) -> bool:
    """True if a study can have this name. Names become paths here; MLflow's experiment Default is its own."""
    return re.fullmatch(NAME, text) is not None and text != "Default"


class Opening(Strict):
    """The first keys of a study file, behind which those of kinds stand."""

    name: str = Field(pattern=NAME, description=f"{NAMED_BY}; names the MLflow experiment")
    about: str = Field("", description="one line: what the study asks")
    model: str | Data | None = Field(
        None, description="a preset, or a mapping: preset or family, and fields (adder-search models)"
    )
    task: str | Data | None = Field(
        None,
        description="what every model is asked, unless it says so itself; by default addition, ten digits, base ten",
    )
    recipe: Data = Field(default_factory=dict, description="how it is trained; see Recipe")
    start: StartSpec | None = Field(None, description="θ of other seeds to start from; without, at random")

    @field_validator("model")
    @classmethod
    def _known(cls, value: str | Data | None) -> str | Data | None:
        """Refuse a misspelt preset or family at once, also where another key is missing."""
        named = {"preset": value} if isinstance(value, str) else value or {}
        for name, known in (("preset", preset), ("family", family_class)):
            if isinstance(named.get(name), str):
                known(named[name])
        return value


class Course(Strict):
    """The seeds of a study, and what ends them."""

    seeds: Seeds = Field(description="first and count, or a list, or init and data to be crossed")
    until: Until = Field(default=Until())
    allocation: Allocation | None = Field(None, description="more seeds for what is still open")
    confirm: Confirm | None = Field(None, description="a second pass on fresh seeds")
    stop: Stop = Field(default=Stop())
    faults: Faults = Field(default=Faults())


if TYPE_CHECKING:

    class Keys(Opening, Course):
        pass

else:
    # Only at run time is it known which kinds there are: packages bring some.
    first = [kind.keys for kind in kinds() if not kind.are_keys_last]
    last = [kind.keys for kind in kinds() if kind.are_keys_last]
    # A class has the fields of its last base first.
    Keys = create_model("Keys", __base__=(*last, Course, *reversed(first), Opening))


class Study(Keys):
    """One question. `model` is a preset's name, or a mapping: preset or family, and constraints."""

    resources: Resources = Field(default=Resources())

    @field_validator("name")
    @classmethod
    def _own_experiment(cls, value: str) -> str:
        if value == "Default":
            raise ValueError("Default is MLflow's own experiment, choose another name")
        return value

    @field_validator("about")
    @classmethod
    def _one_line(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError("must be one line of printable text")
        return value

    @model_validator(mode="after")
    def _meaningful(self) -> Self:
        self.kind.check()
        self._check_start()
        for configuration in self.listed:
            self.stop.check(*configuration)
        self._check_seeds()
        return self

    @cached_property
    def kind(self) -> Kind:
        """What the study is. Raises ValueError at a key path where its file asks for what does not go together."""
        return kind_of(self)

    def model_copy(self, **changes: Any) -> Self:
        """Return a copy with other values in `update`, and a kind that has these."""
        copy = super().model_copy(**changes)
        copy.__dict__.pop("kind", None)  # which a cached property had put there, with the old values
        return copy

    def _check_start(self) -> None:
        """Raise ValueError at the key path of what cannot start, or be tied, as it is asked."""
        goes_on = self.until.grokked or self.allocation or self.confirm
        if self.start and self.start.each and goes_on:
            one_round = "the parent study's seeds are those of one round: no until, allocation, confirm"
            raise error_at("start.each", one_round)
        for i, (spec, recipe) in enumerate(self.kind.spelled_out):
            is_untied = recipe.ramp and not recipe.stages and not isinstance(spec, Tied)
            refuse((is_untied, f"{self.kind.path_of(i)}.ramp: needs a model with ties"))

    def _check_seeds(self) -> None:
        """Raise ValueError at the key path of seeds, or of more of them, that cannot be."""
        seeds = self.first_seeds
        check_numbers(seeds, "seeds")

        enough = self.until.grokked
        limit = self.until.max_seeds
        allocation = self.allocation
        is_endless = enough and not limit and not self.kind.proposes  # a search ends with its proposals
        refuse(
            (limit and not enough, "until: max_seeds needs grokked: how many grokked seeds to go on for"),
            (is_endless, "until: grokked needs max_seeds: up to how many seeds to go on"),
            (enough and allocation, "allocation: a study goes on by until or by allocation, not both"),
        )

        first = len(seeds) * self.planned
        if allocation and (allocation.budget or first) < first:
            least = f"must be at least the first seeds of all configurations ({first})"
            raise error_at("allocation.budget", f"{least}, got {allocation.budget}")

        path, total = ("allocation.most", allocation.most) if allocation else ("until.max_seeds", limit)
        further = (total or len(seeds)) - len(seeds)
        is_beyond = max(seed.init_seed for seed in seeds) + further > LARGEST_SEED
        refuse(
            (further < 0, f"{path}: must be at least the number of seeds ({len(seeds)}), got {total}"),
            (further and isinstance(self.seeds, SeedCross), f"{path}: crossed seeds have no next ones"),
            (is_beyond, f"{path}: the last round would pass the largest seed, {LARGEST_SEED}"),
        )

        if self.confirm:
            fresh = self.confirm_seeds
            check_numbers(fresh, "confirm.seeds")
            own = {seed for seeds in self.rounds for seed in seeds}
            shared = own.intersection(fresh)
            if shared:
                raise error_at("confirm.seeds", f"seed {min(shared)} is one of the study's own")

    @cached_property
    def base_spec(self) -> Spec:
        """The spec that `model` names. Raises ValueError at its key path."""
        return self._changed_spec({})

    def _changed_spec(self, changes: Data, task: Data | None = None) -> Spec:
        if self.model is None:
            raise error_at("model", "missing")
        options = model_options(self.model, "model")
        family = options["family"]
        file = str(options.get(family)).partition(":")[0]
        searched = changes.get(family)
        if options.get("code") and searched and str(searched).partition(":")[0] != file:
            raise error_at(
                f"model.{family}", f"only code of {file} is read, got {searched!r:.80}; list configurations instead"
            )
        return asked_spec(options | changes, "model", self.task, task)

    @cached_property
    def base_recipe(self) -> Recipe:
        """The recipe that `recipe` gives. Raises ValueError at its key path."""
        return self._changed_recipe({})

    def _changed_recipe(self, changes: Data) -> Recipe:
        return recipe_of(self.recipe | changes, "recipe", self.kind.recipe_defaults(self.recipe))

    def configuration(self, values: Data) -> tuple[Spec, Recipe]:
        """Return spec and recipe with a proposal's `values`, by key path."""
        changes: dict[str, Data] = {"model": {}, "recipe": {}, "task": {}}
        for path, value in values.items():
            section, _, name = path.partition(".")
            changes[section][name] = value
        spec = self._changed_spec(changes["model"], changes["task"])
        recipe = self._changed_recipe(changes["recipe"])
        validated_pair(spec, recipe, "recipe")
        self.stop.check(spec, recipe)
        return spec, recipe

    def resolved(self, numbers: Numbers) -> Data:
        """Return the values of a proposal's `numbers`, by key path (search/study/space.py)."""
        return resolve(self.kind.space, numbers, fixed(self.base_spec, self.base_recipe))

    @property
    def listed(self) -> list[Asked]:
        """Spec and recipe of every configuration that the file lists; of a search, of its base."""
        return self.kind.listed

    @property
    def planned(self) -> int:
        """Number of configurations that the file asks for."""
        return self.kind.planned

    @property
    def first_seeds(self) -> list[Seed]:
        """The seeds of the first round; where configurations differ in their number, those of the one with most."""
        return self.kind.first_seeds

    @cached_property
    def confirm_seeds(self) -> list[Seed]:
        """The seeds that confirm the best configurations, if any do."""
        return seed_list(self.confirm.seeds) if self.confirm else []

    @property
    def watched(self) -> list[Seed]:
        """The seeds whose metrics over steps MLflow shows: the first that have a slot from the start.

        They depend on the study file alone, not on the machine or on interruptions.
        """
        count = min(self.resources.slots or CPU_SLOTS, MOST_WATCHED)
        return self.first_seeds[:count]

    @cached_property
    def rounds(self) -> list[list[Seed]]:
        """The seeds of each round: those of the file, then as many again, up to the study's limit."""
        seeds = self.first_seeds
        total = self.allocation.most if self.allocation else self.until.max_seeds or len(seeds)
        start = max(seed.init_seed for seed in seeds) + 1  # behind them, so that none comes again
        further = [Seed.of(number) for number in range(start, start + total - len(seeds))]
        return [seeds, *(further[n : n + len(seeds)] for n in range(0, len(further), len(seeds)))]

    @property
    def until_rule(self) -> tuple[int, list[Seed]] | None:
        """Number of grokked seeds of each configuration at which the study stops, and its seeds in order.

        None where it trains them all, or is a search, which stops as a whole.
        """
        if self.until.grokked is None or self.kind.proposes:
            return None
        return self.until.grokked, [seed for seeds in self.rounds for seed in seeds]
