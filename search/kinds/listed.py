"""A study whose file lists its configurations, or has one."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from pydantic import Field

from model import preset_name
from search.study.kind import Asked, Kind
from search.study.reading import Data
from search.study.space import Strict, error_at
from search.study.spelling import UNSAVED, asked_spec, model_options, recipe_of, toggled, validated_pair, with_changes
from search.study.trial import Configuration
from search.study.written import names_in

MOST_CONFIGURATIONS = 2_000  # a study file may be anybody's
MOST_TOGGLES = 100


class Entry(Strict):
    """One configuration of a list: changes of the study's model and recipe."""

    name: str = Field("", description="by which claims name it (adder-search claims)")
    model: str | Data | None = Field(
        None, description="the spec; a mapping without preset and family changes fields of the study's model"
    )
    recipe: Data = Field(default_factory=dict, description="fields over those of the study's recipe")


class Keys(Strict):
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


class Listed(Kind):
    """Configurations, and each of them with constraints toggled."""

    asked_by = ("configurations", "toggle")
    keys = Keys

    def __init__(self, study: Any):
        super().__init__(study)
        self.entries = study.configurations
        self.toggled = study.toggle

    def check_alone(self) -> None:
        if self.study.space:
            key = next(key for key in self.asked_by if getattr(self.study, key))
            raise error_at(key, "a study has a list of configurations or a space, not both")

    def check(self) -> None:
        check_count(len(self.entries) or 1, self.toggled, "toggle")
        first: dict[Asked, int] = {}
        for i, configuration in enumerate(self.spelled_out):
            if first.setdefault(configuration, i) < i:  # their key would be the same, and so their rows
                raise error_at(f"configurations.{i}", f"the same as configurations.{first[configuration]}")

    def path_of(self, number: int) -> str:
        return f"configurations.{number}.recipe" if self.entries else "recipe"

    @cached_property
    def spelled_out(self) -> list[Asked]:
        """The configurations without the toggled ones."""
        if not self.entries:
            return [self.base]
        return [self._spelled_out(entry, f"configurations.{i}") for i, entry in enumerate(self.entries)]

    def _spelled_out(self, entry: Entry, path: str) -> Asked:
        study = self.study
        model = {} if entry.model is None else entry.model
        if isinstance(model, str) or names_in(model):  # else it is the study's with changes
            options = model_options(model, f"{path}.model")
        elif study.model is None:
            raise error_at(f"{path}.model", "missing, and the study has none")
        else:
            options = with_changes(model_options(study.model, "model"), model)

        recipe = recipe_of(entry.recipe, f"{path}.recipe", study.recipe)
        return validated_pair(asked_spec(options, f"{path}.model", study.task), recipe, f"{path}.recipe")

    @cached_property
    def listed(self) -> list[Asked]:
        """A toggled constraint that would add parameters is left out; equal configurations are listed once."""
        configurations = list(self.spelled_out)
        for spec, recipe in self.spelled_out:
            for i, name in enumerate(self.toggled):
                path = f"toggle.{i}"
                partner = toggled(spec, name, path)
                if partner:
                    configurations.append(validated_pair(partner, recipe, path))
        return list(dict.fromkeys(configurations))

    def plan_design(
        self, to_train: Mapping[Configuration, int], core_hours: Mapping[Configuration, float]
    ) -> list[str]:
        """Return a line for each constraint that is not toggled at a model."""
        lines = []
        for spec in dict.fromkeys(spec for spec, _ in self.spelled_out):
            for name in self.toggled:
                if toggled(spec, name, "toggle") is None:
                    lines.append(f"  {name} is not toggled at {preset_name(spec)}: {UNSAVED}")
        return lines

    def _words_of(self, configuration: Configuration) -> str:
        return self._entry_names.get(configuration.key) or super()._words_of(configuration)

    @cached_property
    def _entry_names(self) -> dict[str, str]:
        """Names that the file gives, by key."""
        entries = zip(self.entries, self.spelled_out, strict=False)  # without entries one is spelled out, the base
        return {Configuration(*pair).key: entry.name for entry, pair in entries if entry.name}


def check_count(listed: int, constraints: Sequence[str], path: str) -> None:
    """Raise ValueError at a key path for too many configurations. constraints: those that each has toggled."""
    count = listed * (1 + len(constraints))
    if count > MOST_CONFIGURATIONS:
        raise error_at(path, f"a study has at most {MOST_CONFIGURATIONS} configurations, this one {count}")
