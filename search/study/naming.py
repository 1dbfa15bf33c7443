"""Names of a study's configurations: in few words, what tells them apart."""

import json
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from model import preset_name
from search.study.schema import Study
from search.study.space import fixed
from search.study.trial import Configuration

MOST_FIELDS = 5
"""Fields in a name; the report has all."""
SHORT = {"weight_decay": "decay"}


class Names:
    """Names of a study's configurations: by what is searched, or else by model and what differs in the list."""

    def __init__(self, study: Study):
        self.study = study
        self._fields: dict[str, list[str]] = {}

    def __getitem__(self, configuration: Configuration) -> str:
        study, preset = self.study, preset_name(configuration.spec)
        if study.proposer or study.start:
            return configuration.title
        if study.space:
            return describe_values(configuration, study.space)
        if name := self._entries.get(configuration.key):
            return name
        if study.combine:
            names = [name.partition("=")[0] for name in study.combine]
            applied = configuration.spec.applied()
            return " + ".join(name for name in names if name in applied) or "none of them"
        words = describe_values(configuration, self._fields_of(preset))
        return words if words and len(self._alike) == 1 else ", ".join(filter(None, (preset, words)))

    @cached_property
    def searched(self) -> list[str]:
        """The fields that the study varies: its space's, or those in which the configurations of its list differ."""
        if self.study.space:
            return list(self.study.space)
        return _differing(Configuration(*pair) for pair in self.study.listed)

    def _fields_of(self, preset: str) -> list[str]:
        """Return the fields that tell the listed configurations of a preset apart: the list is compared once."""
        if preset not in self._fields:
            alike = self._alike.get(preset, [])
            is_of_scales = self.study.scales or self.study.toggle  # whose arms have a scale's recipe
            fields = _differing(alike) if is_of_scales else self.searched
            if len({c.spec for c in alike}) == 1:
                fields = [path for path in fields if path.startswith("recipe.")]
            self._fields[preset] = [path for path in fields if path != "model.family"]
        return self._fields[preset]

    @cached_property
    def _alike(self) -> dict[str, list[Configuration]]:
        """The listed configurations, by preset."""
        alike: dict[str, list[Configuration]] = {}
        for pair in self.study.listed:
            alike.setdefault(preset_name(pair[0]), []).append(Configuration(*pair))
        return alike

    @cached_property
    def _entries(self) -> dict[str, str]:
        """Names that the file gives, by key."""
        entries = zip(self.study.configurations, self.study.spelled_out, strict=False)
        return {Configuration(*pair).key: entry.name for entry, pair in entries if entry.name}


def names_of(study: Study | None, configurations: Iterable[Configuration]) -> dict[str, str]:
    """Return a name for each configuration, by key. Equal ones have the beginning of the key behind them.

    study: None if its file was not recorded.
    """
    names = Names(study) if study else None
    by_key = {c.key: names[c] if names else c.title for c in configurations}
    shared = Counter(by_key.values())
    return {key: name if shared[name] == 1 else f"{name} ({key[:6]})" for key, name in by_key.items()}


def _differing(configurations: Iterable[Configuration]) -> list[str]:
    listed = [c.as_params() for c in configurations]
    names = dict.fromkeys(name for params in listed for name in params if "." in name)
    return [n for n in names if len({json.dumps(params.get(n)) for params in listed}) > 1]


def describe_values(configuration: Configuration, paths: Iterable[str]) -> str:
    """Return fields with their values: `fade 5,000 to 12,000, decay 0.014, shared_norm off`."""
    value_of = fixed(configuration.spec, configuration.recipe)
    texts: dict[str, str] = {}
    for path in paths:
        name, text = path.partition(".")[2], spelt(value_of(path))
        stem, _, end = name.rpartition("_")
        if end == "end" and f"{stem}_start" in texts:
            texts[stem] = f"{texts.pop(f'{stem}_start')} to {text}"
        else:
            texts[SHORT.get(name, name)] = text
    return ", ".join(f"{name} {text}" for name, text in list(texts.items())[:MOST_FIELDS])


def spelt(value: Any) -> str:
    """Return a value in few characters."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return f"{value:,.0f}"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list | tuple):
        return "/".join(map(spelt, value)) or "none"
    return "none" if value in (None, "") else str(value)
