"""A kind of study: one class, for which a study file asks by keys of its own.

Ours are in search/kinds; packages bring others. `Study.kind` is that of a file. All else asks it what it would
have to know of kinds: which configurations there are, what is said of them, and what their study does not allow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from model import Spec, preset_name
from model.tasks import ADDITION, Task
from model.tied import ties_of
from search import plugins
from search.plugins import KINDS, loaded
from search.stats.counting import describe_rules
from search.stats.record import SeedRecord
from search.study.described import MOST_SIZES, describe_sizes, describe_values, differing
from search.study.reading import Data, Plain
from search.study.sampler import GROK_RATE
from search.study.seeds import seed_list
from search.study.space import Space, Strict, error_at
from search.study.spelling import validated_pair
from search.study.start import InitialTheta
from search.study.stopping import BY_PAIR, BY_SEED
from search.study.trial import Configuration
from trainer import Recipe, Seed
from trainer.recipe.lengths import ends_after
from trainer.recipe.stages import road_of

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from search.study.ancestors import Step

Asked = tuple[Spec, Recipe]
"""What a file asks for: spec and recipe of a configuration, before it is known where its seeds start."""
OURS = (
    "search.kinds.listed:Listed", "search.kinds.scales:Scales", "search.kinds.combine:Combine",
    "search.kinds.search:Search",
)  # fmt: skip
"""The kinds in search/kinds, in the order of their keys in a file. Without any of their keys a study is Listed."""


class ProposalSource(Protocol):
    """Proposals of one study, as a planner asks for them."""

    @property
    def exhausted(self) -> bool:
        """True if no proposal follows."""

    def proposed(self) -> list[Configuration]:
        """Return what was proposed in earlier runs, and is not judged."""

    def ask(self) -> Configuration | None:
        """Return the next proposal; None while it depends on what is in training, and at the end."""

    def tell(self, configuration: Configuration, rows: Sequence[SeedRecord], /) -> None:
        """Take the outcomes of a proposal whose seeds have ended."""


class Kind:
    """A study of one configuration, that of its model and recipe; other kinds change what is different with them.

    Of a package with a subclass `Walk` in adder_walk.py, in its pyproject.toml:

    [project.entry-points."adder_search.proposers"]
    walk = "adder_walk:Walk"

    Then a study file may have the keys of `Walk.keys`, and is of that kind if it has one of `Walk.asked_by`.
    """

    # ---- the file

    asked_by: ClassVar[tuple[str, ...]]
    """The keys by which a file asks for this kind; the first names it."""
    keys: ClassVar[type[Strict]]
    """Its keys at the top of a file, with defaults: a part of `Study`."""
    are_keys_last: ClassVar[bool] = False
    """True if its keys stand behind those that all studies have."""

    # ---- what it is

    proposes: ClassVar[bool] = False
    """True if configurations are proposed while the study runs (`propose`), not listed in its file."""
    is_compared: ClassVar[bool] = True
    """True if configurations are compared by their grok rates; False where they are steps to another end."""
    has_unequal_seeds: ClassVar[bool] = False
    """True if configurations differ in the number of their seeds."""
    says_sizes: ClassVar[bool] = False
    """True if a run's summary says each configuration's parameters."""
    sought: str = GROK_RATE
    """The objective that is maximised."""
    seeks_few_parameters: bool = False
    """True if few parameters are an objective too."""
    goal: str = ""
    """What is sought, in words; empty where nothing is."""
    proposer: str = ""
    """What proposes configurations, in words; empty where nothing does, or a page says it otherwise."""
    space: Space = MappingProxyType({})
    """The searched fields, by key path."""
    entries: Sequence[Any] = ()
    """What a list of configurations says of each: its name, changes of model and recipe."""
    toggled: Sequence[str] = ()
    """Constraints with and without which configurations are trained."""
    round_size: int = 0
    """Configurations that are proposed at once, where the number of rounds is not known beforehand."""

    def __init__(self, study: Any):
        """study: a `Study`, which has the keys of this kind too."""
        self.study = study

    def check_alone(self) -> None:
        """Raise ValueError at the key path of what does not go with this kind in a study."""

    def check(self) -> None:
        """Raise ValueError at the key path of what is wrong with its configurations."""

    # ---- its configurations and seeds

    @cached_property
    def spelled_out(self) -> list[Asked]:
        """The configurations that the file spells out."""
        return [] if self.proposes else [self.base]

    @property
    def base(self) -> Asked:
        """Spec and recipe of the file's `model` and `recipe`."""
        return validated_pair(self.study.base_spec, self.study.base_recipe, "recipe")

    @cached_property
    def listed(self) -> list[Asked]:
        """Spec and recipe of every configuration that is trained, each once; nothing where all are proposed.

        A stopping rule must fit each of them.
        """
        return self.spelled_out

    def path_of(self, number: int) -> str:
        """Return the key path of the recipe of a configuration that is spelled out."""
        return "recipe"

    def recipe_defaults(self, fields: Plain) -> Data:
        """Return what a recipe of these fields has where they say nothing, if that is not as in other studies."""
        return {}

    @property
    def planned(self) -> int:
        """Number of configurations that the file asks for, at most."""
        start = self.study.start
        return len(self.listed) * (start.count if start else 1)

    @property
    def planned_seeds(self) -> int:
        """Number of seeds that the file asks for, those of the confirmation included, at most."""
        study = self.study
        confirmed = min(study.confirm.configurations, self.planned) if study.confirm else 0
        seeds_each = sum(map(len, study.rounds))
        return self.planned * seeds_each + confirmed * len(study.confirm_seeds)

    @cached_property
    def first_seeds(self) -> list[Seed]:
        """The seeds of the first round."""
        return seed_list(self.study.seeds)

    def seeds_of(self, configuration: Asked) -> list[Seed]:
        """Return the seeds that a configuration has in the first round."""
        return self.first_seeds

    @property
    def spares(self) -> str:
        """Draw of the seeds that no stopping rule ends. The arms of a list are compared seed by seed, and share it."""
        return self.study.stop.spare or (BY_PAIR if self.proposes else BY_SEED)

    # ---- its run; records: a `StudyRecords` (search/store)

    def check_begun(self, before: Plain) -> None:
        """Raise UserError for a study that cannot go on by its file. before: its last run's definition."""

    def propose(self, parents: Sequence[InitialTheta], records: Any) -> ProposalSource | None:
        """Return the proposals of the study, or go on with them; None where its file lists its configurations.

        parents: each θ that it starts from. Raise UserError.
        """
        return None

    @classmethod
    def changed(cls, was: bool) -> str:
        """Return what is wrong with a file that went on from one of this kind (was), or has become one."""
        return f"{cls.asked_by[0]}: was begun {'with' if was else 'without'} it"

    # ---- its words

    def name_of(self, configuration: Configuration) -> str:
        """Return in few words what tells a configuration from the others."""
        if self.proposes or self.study.start:  # the file does not list what there is to tell apart
            return configuration.title
        return self._words_of(configuration)

    def _words_of(self, configuration: Configuration) -> str:
        """Return what tells a listed configuration from the others."""
        preset = preset_name(configuration.spec)
        words = describe_values(configuration, self._fields.get(preset, ()))
        if words and len(self._fields) == 1:  # all have this preset
            return words
        return ", ".join(filter(None, (preset, words)))

    @property
    def scale_names(self) -> Mapping[str, str]:
        """Names of the configurations that others are compared with, by key: columns of the table of constraints."""
        return {}

    @cached_property
    def varied(self) -> list[str]:
        """The fields that the study varies."""
        return differing(Configuration(*pair) for pair in self.listed)

    @cached_property
    def _fields(self) -> dict[str, list[str]]:
        """The fields that tell the listed configurations of a preset apart, by preset."""
        alike: dict[str, list[Configuration]] = {}
        for spec, recipe in self.listed:
            alike.setdefault(preset_name(spec), []).append(Configuration(spec, recipe))

        found = {}
        for preset, configurations in alike.items():
            # Arms with and without a constraint have the recipe of their scale: only what differs in a scale is said.
            fields = differing(configurations) if self.toggled else self.varied
            if len({configuration.spec for configuration in configurations}) == 1:
                fields = [path for path in fields if path.startswith("recipe.")]
            found[preset] = [path for path in fields if path != "model.family"]
        return found

    @property
    def has_stages(self) -> bool:
        """True if seeds go through stages in every configuration: no rule ends them."""
        recipes = [recipe for _, recipe in self.listed] or [self.study.base_recipe]
        return all(recipe.stages for recipe in recipes)

    def rules(self, configurations: Iterable[str]) -> list[tuple[str, str]]:
        """Return what ends seeds early, and what asks for more: names and words. configurations: keys."""
        study = self.study
        keys = list(configurations)
        listed = []
        for kind in plugins.rules().values():
            asked = [rule for rule in study.stop.rules if type(rule) is kind]
            if not all(rule.suits(spec.task) for rule in asked for spec, _ in self.listed):
                words = "off: not measured for this task"
            elif asked and self.has_stages:
                words = "off: no rule ends a seed that goes through stages"
            elif kind.is_default:  # said also where it is off: nobody asked for it
                words = f"on: {kind.describe(asked)}, {self._spared_words}" if asked else "off: all seeds run on"
            elif asked:
                words = describe_rules(kind, asked, keys)
            else:
                continue
            listed.append((kind.title, words))

        if study.until.grokked:
            words = f"once {study.until.grokked} grokked, so the rate is biased upwards"
            if study.until_rule:
                words += "; its interval is that of the seeds up to the last one needed, in the file's order"
            listed.append(("Stops", words))
        if study.allocation:
            is_open = f"while the interval has {study.allocation.threshold:.0%} in it"
            listed.append(("Allocation of seeds", f"more of them {is_open}, or a place on the front is possible"))
        return listed

    @property
    def _spared_words(self) -> str:
        words = "but for a random tenth of them"
        if self.planned <= 1:
            return words
        drawn = {BY_PAIR: "drawn for each configuration", BY_SEED: "the same seeds in each configuration"}
        return f"{words} ({drawn[self.spares]})"

    def longest_budget(self, recipe: Recipe) -> int:
        """Return the most steps that a recipe of the study has."""
        return recipe.steps

    def too_long(self) -> str:
        """Return which schedules outlast the budgets of the listed configurations; nothing if none does.

        Searched fields are left out: a plan has a remark on each.
        """
        task = self.study.base_spec.task if self.study.model else ADDITION
        asked = [(recipe, spec.task) for spec, recipe in self.listed] or [(self.study.base_recipe, task)]
        texts = Counter(filter(None, (self._late(*each) for each in asked)))
        if not texts:
            return ""

        ((text, count),) = texts.most_common(1)
        if len(asked) > 1:
            text += f" ({count:,} of {len(asked):,} configurations)"
        others = texts.total() - count
        return f"{text}; others in {others} more" if others else text

    def _late(self, recipe: Recipe, task: Task) -> str:
        """Return which schedules outlast a recipe's budget, or those of its stages; nothing if none does."""
        if not recipe.stages:
            return self._late_in(recipe, task, {})
        return "; ".join(
            f"stage {stage.name}: {late}"
            for row, stage in zip(recipe.stages, road_of(recipe), strict=True)
            for key, each in zip(("recipe", "longer"), stage.recipes, strict=False)
            if (late := self._late_in(each, stage.spec.task, row.get("recipe", {}) | row.get(key, {})))
        )

    def _late_in(self, recipe: Recipe, task: Task, own: Plain) -> str:
        """Return which schedules outlast a recipe's budget. own: fields of a stage's, which may have searched steps."""
        budget = recipe.steps if "steps" in own else self.longest_budget(recipe)
        late = [
            f"{name} {end:,}"
            for name, end in ends_after(recipe, budget, task).items()
            if f"recipe.{name}" not in self.space
        ]
        return f"{', '.join(late)}: after the last step, {budget:,}" if late else ""

    def warnings(self) -> list[tuple[str, str]]:
        """Return what speaks against the study's plan, by name."""
        proposed = [self.study.base_spec] if self.study.model else []  # a descent's model is its checkpoint's
        asked = [spec for spec, _ in self.listed] or proposed
        reasons = dict.fromkeys(ties_of(spec)[0].why_not for spec in asked)
        found = [("too long", self.too_long()), *(("cannot learn", reason) for reason in reasons)]
        return [(name, text) for name, text in found if text]

    # ---- the plan of a run; known: its `Forecast` (search/run/forecast.py)

    def plan_round(self, recorded: int) -> list[str]:
        """Return the lines on what is asked of a study with a `round_size`. recorded: its seeds in the home."""
        return []

    def foresee(self, planner: Any, draft: Any, known: Any) -> None:
        """Note what proposals add to a forecast. planner: that of the study; draft: its records, written nowhere."""

    def describe_count(self, known: Any) -> str:
        """Return how many configurations the study has."""
        return str(self.planned)

    def describe_models(self) -> str:
        """Return each family with its numbers of parameters; of many the ends."""
        return describe_sizes((spec for spec, _ in self.listed), MOST_SIZES)

    def plan_search(self) -> list[str]:
        """Return the lines on what is searched, how, and what is sought."""
        return []

    def plan_design(self, to_train: Mapping[Any, int], core_hours: Mapping[Any, float]) -> list[str]:
        """Return the lines of a table of what is compared; seeds to train and their cost are by configuration."""
        return []

    # ---- its results

    def summary(self, records: Any) -> list[str]:
        """Return the lines of a run's summary on proposals."""
        return []

    def write_proposals(self, records: Any, file: Path) -> int:
        """Write its proposals as a study of Optuna's. Return how many; none, and no file, where it has no space."""
        return 0

    def write_pages(self, records: Any, tracker: Any) -> None:
        """Write the end of a study to MLflow, of a kind that is not compared."""

    def lineages(self, records: Any) -> list[list[Step]] | None:
        """Return the ancestors of the best of each size; None where the front says what is best."""
        return None

    def best(self, records: Any) -> tuple[str, Seed] | None:
        """Return the best configuration's key and its seed; None where the front says it, or before there is one."""
        return None

    def pictures(self, records: Any) -> dict[str, Figure]:
        """Return further pictures for the study's page, by name."""
        return {}


def kinds() -> list[type[Kind]]:
    """Return all kinds of study: of packages, and ours behind them."""
    return [*loaded(KINDS).values(), *map(resolve_name, OURS)]


def kind_of(study: Any) -> Kind:
    """Return the kind that a study's file asks for. Raise ValueError at the key path where it asks for several."""
    asked = [kind(study) for kind in kinds() if any(getattr(study, key) for key in kind.asked_by)]
    for kind in asked:
        kind.check_alone()
    if len(asked) > 1:
        first, last = asked[0].asked_by[0], asked[-1].asked_by[0]
        raise error_at(last, f"{first} proposes the configurations of this study")
    return asked[0] if asked else resolve_name(OURS[0])(study)


def names_of(study: Any, configurations: Iterable[Configuration]) -> dict[str, str]:
    """Return a name for each configuration, by key. Equal ones have the beginning of the key behind them.

    study: a `Study`; None if its file was not recorded.
    """
    names = {each.key: study.kind.name_of(each) if study else each.title for each in configurations}
    shared = Counter(names.values())
    return {key: f"{name} ({key[:6]})" if shared[name] > 1 else name for key, name in names.items()}
