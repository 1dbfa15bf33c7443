"""The section `stop` of a study file: a key for each rule that ends seeds before their budget (trainer/stopping)."""

from dataclasses import fields
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_type_hints

from pydantic import Field, create_model, field_validator, model_validator

from model import Spec
from search.plugins import rules
from search.study.space import Strict
from trainer import Recipe, Rule
from trainer.stopping import Rung

BY_PAIR, BY_SEED = "pairs", "seeds"
"""Draws of the spared tenth (search/run/spared.py)."""
Bounds = float | Annotated[tuple[float, float], Field(strict=False)]
"""The least value, or the least and the greatest."""


class Section(Strict):
    """A rule in a study file: its options."""

    kind: ClassVar[type[Rule]]

    @model_validator(mode="after")
    def _meaningful(self) -> Self:
        self.rule()  # raises ValueError
        return self

    def rule(self) -> Rule:
        """Return the rule in the trainer's form."""
        return self.kind(**dict(self))


class Screen(Section):
    """A rung: at step `at` a seed ends that reaches none of the values in `keep`."""

    kind: ClassVar[type[Rule]] = Rung

    at: int = Field(ge=1, description="when a seed is looked at, at the next evaluation; unit: steps")
    keep: dict[str, Bounds] = Field(
        description="what keeps a seed, any of: exact or token (best so far) or a probe, at least so high or "
        "from .. to; nothing: none but those that are spared"
    )

    def rule(self) -> Rung:
        keep = []
        for name, bounds in self.keep.items():
            low, high = bounds if isinstance(bounds, tuple) else (bounds, inf)
            keep.append((name, low, high))
        return Rung(self.at, tuple(keep))


def _key_of(kind: type[Rule]) -> tuple[Any, Any]:
    """Return the type and the field of a rule's key: on or off, its section, or a list of sections."""
    if kind is not Rung and not _options(kind):
        return bool, Field(kind.is_default, description=kind.help)
    section = section_of(kind)
    if kind.most == 1:
        return section | None, Field(None, description=kind.help)
    return list[section], Field(default_factory=list, max_length=kind.most, description=kind.help)  # type: ignore[valid-type]


def section_of(kind: type[Rule]) -> type[Section]:
    """Return the section of a rule: its fields that are made by `model.fields.option`."""
    if kind is Rung:
        return Screen
    types = get_type_hints(kind)
    keys: dict[str, Any] = {}
    for option in _options(kind):
        meta = option.metadata
        unit = f"; unit: {meta['unit']}" if meta["unit"] else ""
        key = Field(option.default, description=meta["help"] + unit, ge=meta["ge"], le=meta["le"])
        keys[option.name] = types[option.name], key
    section = create_model(kind.__name__, __base__=Section, __doc__=kind.help, **keys)
    section.kind = kind
    return section


def _options(kind: type[Rule]) -> list[Any]:
    return [field for field in fields(kind) if "help" in field.metadata]


if TYPE_CHECKING:
    Keys = Strict
else:
    Keys = create_model("Keys", __base__=Strict, **{key: _key_of(kind) for key, kind in rules().items()})


class Stop(Keys):
    """Rules that end a seed before its budget. Each spares a random tenth."""

    spare: Literal["pairs", "seeds"] | None = Field(
        None,
        description="how the spared tenth is drawn. pairs: of ten pairs of configuration and seed one, as in a search "
        "if unset. seeds: of ten one for all configurations, as in a list if unset",
    )

    @field_validator(*(key for key, kind in rules().items() if kind.most > 1), mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return [value] if isinstance(value, dict) else value  # screen: {at: 5000, keep: {token: 0.35}}

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        for key, kind in rules().items():
            try:
                kind.check_together(self._asked(key))
            except ValueError as error:
                raise ValueError(f"{key}.{error}") from None
        return self

    def _asked(self, key: str) -> list[Rule]:
        """Return the rules under a key, which is on or off, a section, or a list of sections."""
        value = getattr(self, key)
        if not value:
            return []
        if value is True:
            return [rules()[key]()]
        sections = value if isinstance(value, list) else [value]
        return [section.rule() for section in sections]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that the study has."""
        return tuple(rule for key in rules() for rule in self._asked(key))

    def check(self, spec: Spec, recipe: Recipe) -> None:
        """Raise ValueError at the key path of a rule that reads what a configuration lacks."""
        for key in rules():
            asked = self._asked(key)
            # A default rule is off there without a word: nobody asked for it.
            if recipe.stages and any(not rule.is_default for rule in asked):
                raise ValueError(f"stop.{key}: no rule ends a seed that goes through stages")
            for i, rule in enumerate(asked):
                path = f"stop.{key}" if len(asked) == 1 else f"stop.{key}.{i}"
                try:
                    rule.check(spec, recipe)
                except ValueError as error:
                    raise ValueError(f"{path}.{error}") from None
