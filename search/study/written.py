"""A study file before it is checked: what it extends, names that stand for values, and keys that a command sets.

All work on plain values, so that the study that is recorded has what was meant, spelt out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model.fields import did_you_mean
from model.spec import family_of
from model.tasks import make_task, options_of
from search.errors import UserError, printable
from search.study.reading import Data, Plain, read_data
from search.study.space import error_at, errors_at

EXTENDS = "extends"
NAMED = re.compile(r"\$\{([^}]*)\}")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAME_MODELS = {"base", "checkpoint", "family", "preset", "rung"}
"""Keys of a model whose other keys are changes of what they name."""
SHORT = {"model": "preset", "into": "preset", "base": "preset", "warm_start": "file"}
"""Sections that may be a text, three of them models, and the key whose value it is; a task's text has options too."""
MOST_EXTENDED = 16
MOST_TOLD = 12
"""Differences that a remark names at most."""


@dataclass(frozen=True)
class Changes:
    """What a command changes in a study file. sets: `PATH=VALUE`. env: `NAME`, or `NAME=VALUE`."""

    sets: tuple[str, ...] = ()
    env: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.sets or self.env)

    def named(self, data: Data) -> Data:
        """Return what a file has, with names replaced. Raises ValueError at the key path, UserError.

        A recorded study has had its names replaced, and code of modules in it, whose text stays as it is.
        """
        return _replaced(data, _values_of(self.env), "")

    def set_in(self, data: Data) -> Data:
        """Return plain values with keys set. Raises UserError."""
        for text in self.sets:
            data = _with_set(data, text)
        return data


UNCHANGED = Changes()


def laid_over_base(base: Data, data: Data) -> Data:
    """Return plain values laid over those that they extend. Name and description are never taken over."""
    return laid_over(base, {"name": None, "about": None, **data, EXTENDS: None})


def laid_over(below: Plain, above: Plain, section: str = "") -> Data:
    """Return mappings merged key by key, the one above first; its nulls take keys away. section: the key of both.

    >>> laid_over({"recipe": {"lr": 0.1, "steps": 9}}, {"recipe": {"lr": 0.2, "steps": None}})
    {'recipe': {'lr': 0.2}}
    """
    merged = _kept(below, above, section)
    for key, value in above.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(under := _spelt_out(merged.get(key), key), Mapping):
            merged[key] = laid_over(under, value, key)
        else:
            merged[key] = value
    return merged


def names_in(values: Plain, section: str = "model") -> set[str]:
    """Return what names a model, or a task: keys, and its family or name."""
    if section == "task":
        return {str(values.get("name"))} - {"None"}
    return {*NAME_MODELS & values.keys(), str(family_of(values))} - {"None"}


def _kept(below: Plain, above: Plain, section: str) -> Data:
    """Return what stays of a section where keys are given anew: nothing of another model, task or file of trials."""
    if section == "warm_start":
        # A study file's path stays, for another study in that file; a record has its name alone.
        stays = {"study"} if "trials" not in below else set()
        return dict(below) if above.keys() <= stays else {}
    if section not in ("task", *SHORT):
        return dict(below)
    named = names_in(below, section)
    if named and not names_in(above, section) <= named:
        return {}
    # What was read out of a module's file, or a tied checkpoint's.
    read_in = {"base": {"family"}, str(family_of(below)): {"code", "digest"}}
    gone = set().union(*(read_in.get(key, ()) for key in above))
    match above:
        case {"args": {**arguments}}:  # one that has been given by its own name would win
            gone |= {f"args.{name}" for name in arguments}
    return {key: value for key, value in below.items() if key not in gone}


def _spelt_out(value: Any, section: str) -> Any:
    """Return the mapping that a section's text is short for; any other value as it is."""
    if section == "task" and isinstance(value, str):
        task = make_task(value)
        return {"name": task.name, **options_of(task)}
    return {SHORT[section]: value} if section in SHORT and isinstance(value, str) else value


def differences(below: Any, above: Any, path: str = "") -> list[str]:
    """Return a text for each value in which plain values differ from those that they extend.

    >>> differences({"recipe": {"lr": 0.1}}, {"recipe": {"lr": 0.2}, "seeds": [1]})
    ['recipe.lr: 0.1 -> 0.2', 'seeds: [1]']
    """
    if below == above:
        return []
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return [f"{path}: {below!r:.60} -> {above!r:.60}"]
    texts = []
    for key in dict.fromkeys([*below, *above]):
        place = f"{path}.{key}" if path else str(key)
        if key not in below:
            texts.append(f"{place}: {above[key]!r:.60}")
        elif key not in above:
            texts.append(f"{place}: taken away")
        else:
            texts += differences(below[key], above[key], place)
    return texts


def remark_on(base: Data, data: Data) -> str:
    """Return a line on what a study changes in the one that it extends, in characters that a terminal can show."""
    texts = [text for text in differences(base, data) if text.partition(":")[0] not in ("name", "about")]
    told = texts[:MOST_TOLD]
    if len(texts) > MOST_TOLD:
        told.append(f"and {len(texts) - MOST_TOLD} more")
    return printable(f"extends {base.get('name')}; {'; '.join(told) or 'nothing differs'}")


# ---- names that stand for values


def _values_of(env: Sequence[str]) -> dict[str, str]:
    """Return the values of names, given as `NAME=VALUE` or read from the environment. Raises UserError."""
    values = {}
    for text in env:
        name, equals, value = text.partition("=")
        if not IDENTIFIER.fullmatch(name):
            raise UserError(f"--env {text}: give NAME, or NAME=VALUE; a name has letters, digits and _")
        if not equals and name not in os.environ:
            raise UserError(f"--env {name}: the environment has no {name}; give --env {name}=VALUE")
        values[name] = value if equals else os.environ[name]
    return values


def _replaced(value: Any, values: Mapping[str, str], path: str) -> Any:
    """Return a value with the names in its texts replaced. A text that is one name alone becomes any plain value."""
    if isinstance(value, dict):
        prefix = f"{path}." if path else ""
        return {key: _replaced(entry, values, f"{prefix}{key}") for key, entry in value.items()}
    if isinstance(value, list):
        return [_replaced(entry, values, f"{path}.{n}") for n, entry in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replace(found: re.Match[str]) -> str:
        name = found[1]
        if name not in values:
            what = f"--env {name}" if IDENTIFIER.fullmatch(name) else "a name of letters, digits and _"
            raise error_at(path, f"{found[0]} stands for nothing here; give {what}")
        return values[name]

    alone = NAMED.fullmatch(value)
    if alone is not None:
        text = replace(alone)
        with errors_at(path):
            return read_data(text)
    return NAMED.sub(replace, value)


# ---- keys that a command sets


def _with_set(data: Data, text: str) -> Data:
    """Return plain values with one key set. Raises UserError for a text that is no PATH=VALUE, or leads nowhere."""
    path, equals, written = text.partition("=")
    if not equals or not path or "" in path.split("."):
        raise UserError(f"--set {text}: give PATH=VALUE, as in --set recipe.lr=0.01")
    try:
        return dict(_set_at(data, path.split("."), read_data(written), ""))
    except ValueError as error:
        raise UserError(f"--set {text}: {error}") from None


def _set_at(container: Any, parts: Sequence[str], value: Any, path: str) -> Any:
    """Return a container with a value at the end of a path, whose parts may be joined in a key."""
    if not parts:
        return value
    if isinstance(container, list):
        return _set_in_list(container, parts, value, path)
    section = path.rpartition(".")[2]
    container = _spelt_out(container, section)
    if not isinstance(container, Mapping | None):
        raise error_at(path, f"is {container!r:.60}, which has no {parts[0]}")

    inside = container or {}
    count = _parts_of_key(inside, parts, path)
    key = ".".join(parts[:count])
    place = f"{path}.{key}" if path else key
    kept = _kept(inside, {key: value}, section)
    return kept | {key: _set_at(inside.get(key), parts[count:], value, place)}


def _parts_of_key(inside: Plain, parts: Sequence[str], path: str) -> int:
    """Return how many parts of a path make the next key: those of the longest key that is there, or of a new one."""
    for count in range(len(parts), 0, -1):
        if ".".join(parts[:count]) in inside:
            return count
    if path == "space":  # whose keys are paths themselves
        of_field = 3 if parts[:2] == ["model", "args"] else 2
        return min(of_field, len(parts))  # a new field: recipe.lr, model.args.width
    return 1


def _set_in_list(values: list[Any], parts: Sequence[str], value: Any, path: str) -> list[Any]:
    """Return a list with a value at the end of a path that begins with the number of an entry, or its name."""
    names = [entry.get("name") if isinstance(entry, dict) else None for entry in values]
    keys = [*map(str, range(len(values))), *names]
    if parts[0] not in keys:
        raise error_at(path, f"has no entry {parts[0]!r}; {did_you_mean(parts[0], filter(None, keys))}")
    n = keys.index(parts[0]) % len(values)
    changed = list(values)
    changed[n] = _set_at(values[n], parts[1:], value, f"{path}.{n}")
    return changed
