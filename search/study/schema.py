"""The sections of a study file. Every field says what it counts; search/study/file.py reads the file."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, create_model, field_validator, model_validator

from model import Spec
from model.tasks import only_addition
from model.tied import Tied
from search.study.combinations import MOST_COMBINED, combinations
from search.study.proposer import Proposing, proposer_keys
from search.study.resources import CPU_SLOTS, Faults, Resources
from search.study.sampler import Sampler
from search.study.scales import Design, Pair, Scale, check_scales, design_of
from search.study.seeds import (
    Allocation,
    Confirm,
    SeedCross,
    SeedRange,
    Seeds,
    Until,
    check_numbers,
    seed_list,
)
from search.study.space import (
    LARGEST_SEED,
    Distribution,
    Strict,
    check_space,
    error_at,
    fixed,
    refuse,
    resolve,
)
from search.study.spelling import model_options, recipe_of, spec_of, toggled, validated_pair, with_task
from search.study.start import StartSpec
from search.study.stopping import BY_PAIR, BY_SEED, Stop
from trainer import Recipe, Seed
from trainer.recipe.ramp import tie_ramp_defaults

MOST_WATCHED = 64
MOST_CONFIGURATIONS, MOST_TOGGLES = 2_000, 100
LONGEST_NAME = 64
NAME = rf"^[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_NAME - 1}}}$"


def is_name(text: str) -> bool:
    """True if a study can have this name. Names become paths here; MLflow's experiment Default is its own."""
    return re.fullmatch(NAME.strip("^$"), text) is not None and text != "Default"


class Entry(Strict):
    """One configuration of a list: changes of the study's model and recipe."""

    name: str = Field("", description="by which claims name it (adder-search claims)")
    model: str | dict[str, Any] | None = Field(
        None, description="the spec; a mapping without preset and family changes fields of the study's model"
    )
    recipe: dict[str, Any] = Field(default_factory=dict, description="fields over those of the study's recipe")


class Opening(Strict):
    """The first keys of a study file, behind which those of proposers stand."""

    name: str = Field(pattern=NAME, description="letters, digits, dot, dash, underscore; names the MLflow experiment")
    about: str = Field("", description="one line: what the study asks")
    model: str | dict[str, Any] | None = Field(
        None, description="a preset, or a mapping: preset or family, and fields (adder-search models)"
    )
    task: str | dict[str, Any] | None = Field(
        None,
        description="what every model is asked, unless it says so itself; by default addition, ten digits, base ten",
    )
    recipe: dict[str, Any] = Field(default_factory=dict, description="how it is trained; see Recipe")
    start: StartSpec | None = Field(None, description="θ of other seeds to start from; without, at random")


if TYPE_CHECKING:
    Keys = Opening
else:
    Keys = create_model(
        "Keys",
        __base__=Opening,
        **{
            name: (proposer.section | None, Field(None, description=proposer.description))
            for name, proposer in proposer_keys().items()
        },
    )


class Study(Keys):
    """One question. `model` is a preset's name, or a mapping: preset or family, and constraints."""

    configurations: list[Entry] = Field(
        default_factory=list,
        max_length=MOST_CONFIGURATIONS,
        description="several, each trained with all the seeds",
    )
    toggle: list[str] = Field(
        default_factory=list,
        max_length=MOST_TOGGLES,
        description="each configuration also with each of these constraints toggled: tie_vo, qk_dim=4",
    )
    scales: dict[str, Scale] = Field(
        default_factory=dict,
        max_length=MOST_TOGGLES,
        description="presets, each with its recipe and seeds: the columns of the table of constraints",
    )
    constraints: list[str] = Field(
        default_factory=list,
        max_length=MOST_TOGGLES,
        description="the rows of that table, toggled at each scale: tie_vo, qk_dim=4",
    )
    combine: list[str] = Field(
        default_factory=list,
        max_length=MOST_COMBINED,
        description="the model with every combination of these constraints, each on or off: tie_vo, qk_dim=4",
    )
    seeds: Seeds = Field(description="first and count, or a list, or init and data to be crossed")
    until: Until = Field(default=Until())
    allocation: Allocation | None = Field(None, description="more seeds for what is still open")
    confirm: Confirm | None = Field(None, description="a second pass on fresh seeds")
    stop: Stop = Field(default=Stop())
    faults: Faults = Field(default=Faults())
    space: dict[str, Distribution] = Field(
        default_factory=dict, description="searched fields: recipe.NAME, model.NAME or task.NAME"
    )
    sampler: Sampler = Field(default=Sampler())
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
        listed, constraints = self.configurations or self.scales, self.toggle or self.constraints
        if (count := (len(listed) or 1) * (1 + len(constraints))) > MOST_CONFIGURATIONS:
            raise error_at(
                "constraints" if self.scales else "toggle",
                f"a study has at most {MOST_CONFIGURATIONS} configurations, this one {count}",
            )
        check_scales(self)
        lists = [name for name in ("configurations", "toggle", "combine") if getattr(self, name)]
        if lists and self.space:
            raise error_at(lists[0], "a study has a list of configurations or a space, not both")
        if self.combine and lists != ["combine"]:
            raise error_at("combine", "goes with one model: no configurations or toggle")
        first: dict[tuple[Spec, Recipe], int] = {}
        for i, configuration in enumerate(self.spelled_out):
            if first.setdefault(configuration, i) < i:
                raise error_at(f"configurations.{i}", f"the same as configurations.{first[configuration]}")
        if self.space:
            check_space(self.space, self.base_spec, self.configuration)
            self.sampler.planned(self.space)
        self._check_start()
        keys = [key for key in proposer_keys() if getattr(self, key)]
        if self.proposer:
            refuse((len(keys) > 1, f"{keys[-1]}: {keys[0]} proposes the configurations of this study"))
            if self.model is not None:
                only_addition(self.base_spec.task, keys[0])
            self.proposer.check(self)
        for configuration in self.listed if self.scales else self.spelled_out:
            self.stop.check(*configuration)
        self._check_seeds()
        return self

    @cached_property
    def design(self) -> Design:
        """The cells of the study's scales; empty without any."""
        count = len(seed_list(self.seeds))
        return design_of(self.scales, self.constraints, self.recipe, count, self.task)

    def _check_start(self) -> None:
        start, goes_on = self.start, self.until.grokked or self.allocation or self.confirm
        one_round = "the parent study's seeds are those of one round: no until, allocation, confirm"
        refuse(
            (start and start.count > 1 and self.space, "start.best: a search starts from one θ"),
            (start and start.each and goes_on, f"start.each: {one_round}"),
        )
        for i, (spec, recipe) in enumerate(self.spelled_out):
            path = f"configurations.{i}.recipe" if self.configurations else "recipe"
            refuse((recipe.ramp and not isinstance(spec, Tied), f"{path}.ramp: needs a model with ties"))

    def _check_seeds(self) -> None:
        seeds, allocation = self.first_seeds, self.allocation
        check_numbers(seeds, "seeds")
        enough, limit = self.until.grokked, self.until.max_seeds
        how_many, up_to = "how many grokked seeds to go on for", "up to how many seeds to go on"
        refuse(
            (limit and not enough, f"until: max_seeds needs grokked: {how_many}"),
            (enough and not limit and not self.space, f"until: grokked needs max_seeds: {up_to}"),
            (enough and allocation, "allocation: a study goes on by until or by allocation, not both"),
        )
        first = len(seeds) * self.planned
        if allocation and (allocation.budget or first) < first:
            least = f"must be at least the first seeds of all configurations ({first})"
            raise error_at("allocation.budget", f"{least}, got {allocation.budget}")
        path, total = ("allocation.most", allocation.most) if allocation else ("until.max_seeds", limit)
        further, least = (total or len(seeds)) - len(seeds), f"at least the number of seeds ({len(seeds)})"
        is_beyond = max(s.init_seed for s in seeds) + further > LARGEST_SEED
        refuse(
            (further < 0, f"{path}: must be {least}, got {total}"),
            (further and isinstance(self.seeds, SeedCross), f"{path}: crossed seeds have no next ones"),
            (is_beyond, f"{path}: the last round would pass the largest seed, {LARGEST_SEED}"),
        )
        if self.confirm:
            fresh = self.confirm_seeds
            check_numbers(fresh, "confirm.seeds")
            if both := {s for r in self.rounds for s in r}.intersection(fresh):
                raise error_at("confirm.seeds", f"seed {min(both)} is one of the study's own")

    @cached_property
    def base_spec(self) -> Spec:
        """The spec that `model` names. Raises ValueError at its key path."""
        return self._changed_spec({})

    def _changed_spec(self, changes: dict[str, Any], task: dict[str, Any] | None = None) -> Spec:
        if self.model is None:
            raise error_at("model", "missing")
        spec = spec_of(model_options(self.model, "model") | changes, "model")
        return with_task(spec, self.task, task or {})

    @cached_property
    def base_recipe(self) -> Recipe:
        """The recipe that `recipe` gives. Raises ValueError at its key path."""
        return self._changed_recipe({})

    def _changed_recipe(self, changes: dict[str, Any]) -> Recipe:
        steps = self.recipe.get("steps", tie_ramp_defaults()["steps"])
        is_known = self.proposer and type(steps) is int and steps > 0
        usual = self.proposer.recipe_defaults(steps) if self.proposer and is_known else {}
        return recipe_of(self.recipe, changes, "recipe", base=usual)

    @cached_property
    def listed(self) -> list[Pair]:
        """Spec and recipe of every configuration that the file lists; of a search, of its base.

        A toggled constraint that would add parameters is left out; equal configurations are listed once.
        """
        if self.scales:
            return list(self.design.seeds)
        configurations = list(self.spelled_out)
        for spec, recipe in self.spelled_out:
            for i, name in enumerate(self.toggle):
                if partner := toggled(spec, name, f"toggle.{i}"):
                    configurations.append(validated_pair(partner, recipe, f"toggle.{i}"))
        return list(dict.fromkeys(configurations))

    @cached_property
    def spelled_out(self) -> list[tuple[Spec, Recipe]]:
        """The configurations of `listed` without the toggled ones."""
        if self.proposer:
            return []
        if self.scales:
            return self.design.bases
        if self.combine:
            specs = combinations(self.base_spec, self.combine, "combine")
            return [validated_pair(spec, self.base_recipe, "recipe") for spec in specs]
        if not self.configurations:
            return [validated_pair(self.base_spec, self.base_recipe, "recipe")]
        return [self._entry(e, f"configurations.{i}") for i, e in enumerate(self.configurations)]

    def _entry(self, entry: Entry, path: str) -> tuple[Spec, Recipe]:
        model = {} if entry.model is None else entry.model
        if isinstance(model, dict) and not {"preset", "rung", "family", "base"} & model.keys():
            if self.model is None:
                raise error_at(f"{path}.model", "missing, and the study has none")
            options = model_options(self.model, "model") | model
        else:
            options = model_options(model, f"{path}.model")
        recipe = recipe_of(entry.recipe, {}, f"{path}.recipe", base=self.recipe)
        spec = with_task(spec_of(options, f"{path}.model"), self.task, {})
        return validated_pair(spec, recipe, f"{path}.recipe")

    def configuration(self, values: dict[str, Any]) -> tuple[Spec, Recipe]:
        """Return spec and recipe with a proposal's `values`, by key path."""
        split: dict[str, dict[str, Any]] = {"model": {}, "recipe": {}, "task": {}}
        for path, value in values.items():
            part, name = path.split(".")
            split[part][name] = value
        pair = validated_pair(
            self._changed_spec(split["model"], split["task"]), self._changed_recipe(split["recipe"]), "recipe"
        )
        self.stop.check(*pair)
        return pair

    @property
    def proposer_key(self) -> str | None:
        """The key of a package under which the study's configurations are proposed, if it has one."""
        return next((key for key in proposer_keys() if getattr(self, key)), None)

    @property
    def proposer(self) -> Proposing | None:
        """The section of `proposer_key`."""
        section: Proposing | None = getattr(self, self.proposer_key) if self.proposer_key else None
        return section

    @property
    def proposes(self) -> bool:
        """True if configurations are proposed while the study runs, not listed in its file."""
        return bool(self.space or self.proposer)

    def resolved(self, numbers: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a proposal's `numbers`, by key path (search/study/space.py)."""
        return resolve(self.space, numbers, fixed(self.base_spec, self.base_recipe))

    @property
    def spares(self) -> str:
        """Draw of the seeds that no stopping rule ends. The arms of a list are compared seed by seed, and share it."""
        return self.stop.spare or (BY_PAIR if self.proposes else BY_SEED)

    @property
    def planned(self) -> int:
        """Number of configurations that the file asks for."""
        if self.proposer:
            return self.proposer.planned
        starts = self.start.count if self.start else 1
        return self.sampler.planned(self.space) if self.space else starts * len(self.listed)

    @cached_property
    def planned_seeds(self) -> int:
        """Number of seeds that the file asks for, those of the confirmation included, at most."""
        if self.scales:
            return sum(self.design.seeds.values())
        confirmed = min(self.confirm.configurations, self.planned) if self.confirm else 0
        return self.planned * sum(map(len, self.rounds)) + confirmed * len(self.confirm_seeds)

    @cached_property
    def first_seeds(self) -> list[Seed]:
        if not (self.scales and isinstance(self.seeds, SeedRange)):
            return seed_list(self.seeds)
        first = self.seeds.first
        return [Seed.of(n) for n in range(first, first + max(self.design.seeds.values()))]

    def seeds_of(self, configuration: Pair) -> list[Seed]:
        """Return a configuration's seeds of the first round. They differ by scale alone."""
        return self.first_seeds[: self.design.seeds[configuration]] if self.scales else self.first_seeds

    @cached_property
    def confirm_seeds(self) -> list[Seed]:
        """The seeds that confirm the best configurations, if any do."""
        return seed_list(self.confirm.seeds) if self.confirm else []

    @property
    def watched(self) -> list[Seed]:
        """The seeds whose metrics over steps MLflow shows: the first that have a slot from the start.

        They depend on the study file alone, not on the machine or on interruptions.
        """
        return self.first_seeds[: min(self.resources.slots or CPU_SLOTS, MOST_WATCHED)]

    @cached_property
    def rounds(self) -> list[list[Seed]]:
        """The seeds of each round: those of the file, then as many again, up to the study's limit."""
        seeds = self.first_seeds
        total = self.allocation.most if self.allocation else self.until.max_seeds or len(seeds)
        start = max(s.init_seed for s in seeds) + 1
        numbers = range(start, start + total - len(seeds))
        further = [numbers[n : n + len(seeds)] for n in range(0, len(numbers), len(seeds))]
        return [seeds, *([Seed.of(number) for number in chunk] for chunk in further)]

    @property
    def until_rule(self) -> tuple[int, list[Seed]] | None:
        """Number of grokked seeds of each configuration at which the study stops, and its seeds in order.

        None where it trains them all, or is a search, which stops as a whole.
        """
        if self.until.grokked is None or self.space:
            return None
        return self.until.grokked, [seed for seeds in self.rounds for seed in seeds]
