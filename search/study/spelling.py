"""Spec and recipe from the words of a study file: a preset with changes, a base with ties, a recipe."""

import dataclasses
import re
from pathlib import Path
from typing import Any

from model import Spec, make_spec, preset
from model.fields import did_you_mean, spelt
from model.files import JSON_FILE, read_limited
from model.spec import family_of, no_family
from model.tasks import changed, make_task
from model.tied import Tied
from model.trust import LARGEST_CODE, digest_of, is_file, may_run
from search.study.reading import Data, read_data
from search.study.space import error_at, errors_at
from search.study.warm import inline_trials
from trainer import Recipe
from trainer.files.paths import expanded
from trainer.files.trusted import is_own, trust
from trainer.recipe.seed import check_fit

LARGEST_FILE = 1 << 20  # bytes
UNSAVED = "it would take no parameter away"
"""Why a constraint is not toggled, where `toggled` returns None."""


def constraint_of(spec: Spec, name: str, path: str) -> tuple[str, int]:
    """Return name and value of a constraint that is written as `tie_vo` or `qk_dim=4`.

    Raise ValueError at the key path if the model has it with another value than that.
    """
    constraint, _, value = name.partition("=")
    if not value:
        return constraint, True
    if not value.isdecimal():
        raise error_at(path, f"a constraint's value must be a whole number, got {value!r}")
    applied = spec.applied().get(constraint, int(value))
    if applied != int(value):
        raise error_at(path, f"the model has {spelt(constraint, applied)}")
    return constraint, int(value)


def toggled(spec: Spec, name: str, path: str) -> Spec | None:
    """Return the spec with a constraint toggled, written as `tie_vo` or `qk_dim=4`.

    None where toggling is no comparison: the constraint would change nothing, or add parameters. Raise ValueError at
    the key path if it is impossible there, or if the model has it with another value; without a value it is taken off,
    whatever that is.
    """
    constraint, value = constraint_of(spec, name, path)
    with errors_at(path):
        partner = spec.toggled(constraint, value)
    is_taken_away = constraint in spec.applied()
    is_comparison = partner != spec and is_taken_away == (partner.params > spec.params)
    return partner if is_comparison else None


def model_options(model: str | Data, path: str) -> Data:
    """Return family and fields of a model: a preset's with changes, or a base's with ties."""
    options = {"preset": model} if isinstance(model, str) else dict(model)
    if "rung" in options and "preset" not in options:  # the key's earlier name
        options["preset"] = options.pop("rung")
    if "ties" in options and "family" not in options:
        base = options.pop("base", None)
        if not isinstance(base, str | dict):
            raise error_at(f"{path}.base", f"must be a string or a mapping, got {base!r:.80}")
        return {"family": Tied.family, "base": model_options(base, f"{path}.base"), **options}
    for name in {"preset", "family"} & options.keys():
        if not isinstance(options[name], str):
            raise error_at(f"{path}.{name}", f"must be a string, got {options[name]!r}")

    if "preset" in options:
        with errors_at(path):
            return {**preset(options.pop("preset")).as_dict(), **options}
    if family_of(options) is None:
        raise error_at(path, str(no_family(options)))
    return {"family": family_of(options), **options}


def with_changes(options: Data, changes: Data) -> Data:
    """Return a model's options with changes laid over them, and arguments of a class over its others."""
    match changes:
        case {"args": {**named}, **others}:
            # Each by its own name: that is laid over `args`, and over what has the same name.
            changes = {f"args.{name}": value for name, value in named.items()} | others
    return {**options, **changes}


def asked_spec(options: Data, path: str, task: Any, changes: Data | None = None) -> Spec:
    """Return the spec of these options with the study's task, unless they name one, and with changes of that."""
    with errors_at(path):
        spec = make_spec(**options)
    asked = None if "task" in options else task
    if asked is None and not changes:
        return spec
    if isinstance(spec, Tied):  # which is asked what its base is
        return dataclasses.replace(spec, base=asked_spec(options["base"], path, task, changes))
    with errors_at("task"):
        return dataclasses.replace(spec, task=changed(make_task(asked or spec.task), changes or {}))


def validated_pair(spec: Spec, recipe: Recipe, path: str) -> tuple[Spec, Recipe]:
    """Return both. Raise ValueError at the recipe's key path if the recipe does not fit the spec."""
    with errors_at(path):
        check_fit(spec, recipe)
    return spec, recipe


WORD = re.compile(r"[0-9a-f]{12}:")
"""Beginning of a teacher in its recorded form, which a file may hold."""


def recipe_of(fields: Data, path: str, base: Data) -> Recipe:
    """Return a recipe of `base` with `fields` over it. Raise ValueError at the key path."""
    names = [field.name for field in dataclasses.fields(Recipe)]
    for where, part in (("recipe", base), (path, fields)):
        for name in part:
            if name not in names:
                raise error_at(f"{where}.{name}", f"unknown key; {did_you_mean(name, names)}")
    with errors_at(path):
        return Recipe(**base | fields)


def inline_files(data: Data, folder: Path = Path(), are_asked: bool = True) -> Data:
    """Return a study's plain values with the files that they name read in, so that a record needs no file.

    folder: where files of modules, tables and trials are looked for. are_asked: False for a study that is extended: the
    task of its stages, and its trials, are left to the one that extends it. A model's `checkpoint: DIR` becomes its
    spec, and `ties: FILE` a list of constraints or a mapping by tensor, in a recipe's stages too; `module:
    FILE.py:Class` gets the file's text; a recipe's `teacher: DIR` becomes the teacher itself, a task's `entries: {file:
    FILE}` the table, and a sampler's `warm_start: FILE` its trials. Raise ValueError at the key path.
    """
    data = _inline_table(data, "", folder)  # once: stages are asked the task too
    return _Reader(folder, data.get("task"), are_asked).entry(data, "")


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Reads files into the entries of a study.

    folder, are_asked: as in `inline_files`. task: the study's, if it says one. Values of a wrong form stay as they are,
    for the error that names their key.
    """

    folder: Path
    task: Any
    are_asked: bool

    def entry(self, entry: Any, path: str) -> Any:
        """Return a study or an entry of it with its files read in, and those of its own entries."""
        if not isinstance(entry, dict):
            return entry
        readers = {"model": self.model, "recipe": self.recipe, "sampler": self.sampler}
        inlined = dict(entry)
        for key, read in readers.items():
            if isinstance(entry.get(key), dict):
                inlined[key] = read(entry[key], path + key)
        for key in ("configurations", "scales", "bases"):
            if key in entry:
                inlined[key] = self.entries(entry[key], path + key)
        return inlined

    def entries(self, entries: Any, path: str) -> Any:
        if isinstance(entries, list):
            return [self.entry(entry, f"{path}.{n}.") for n, entry in enumerate(entries)]
        if isinstance(entries, dict):
            return {name: self.entry(entry, f"{path}.{name}.") for name, entry in entries.items()}
        return entries

    def sampler(self, sampler: Data, path: str) -> Data:
        return inline_trials(sampler, self.folder, self.are_asked)

    def model(self, model: Data, path: str) -> Data:
        model = _inline_table(_inline_model(model, path), f"{path}.", self.folder)
        base = model.get("base")
        if isinstance(base, dict):  # a tied model: module and task are its base's
            return {**model, "base": self.model(base, f"{path}.base")}
        return _read_code(model, path, self.folder)

    def recipe(self, recipe: Data, path: str) -> Data:
        recipe = _inline_teacher(recipe, path)
        stages = recipe.get("stages")
        if not isinstance(stages, list):
            return recipe
        read = [self.stage(stage, f"{path}.stages[{n}]") for n, stage in enumerate(stages)]
        return {**recipe, "stages": read}

    def stage(self, stage: Any, path: str) -> Any:
        """Return a stage with its models and teachers read in."""
        if not isinstance(stage, dict):
            return stage
        read = {key: _inline_teacher(stage[key], f"{path}.{key}") for key in stage.keys() & {"recipe", "longer"}}
        for key in stage.keys() & {"model", "into"}:
            model = stage[key]
            is_asked = self.are_asked and self.task is not None
            if is_asked and isinstance(model, str) and " " not in model:  # the name of a preset
                model = {"preset": model}
            if isinstance(model, dict):
                model = _asked(self.model(model, f"{path}.{key}"), self.task, is_asked)
            read[key] = model
        return {**stage, **read}


def _asked(model: Data, task: Any, is_asked: bool) -> Data:
    """Return a stage's model with the study's task, unless it names one, or without that, which a record spells out."""
    if isinstance(model.get("base"), dict):  # a tied model is asked what its base is
        return {**model, "base": _asked(model["base"], task, is_asked)}
    own = {key: value for key, value in model.items() if (key, value) != ("task", task)}
    return {"task": task, **own} if is_asked else own


def _inline_teacher(recipe: Any, path: str) -> Any:
    name = recipe.get("teacher") if isinstance(recipe, dict) else None
    if not isinstance(name, str) or not name or WORD.match(name):  # none, or a recorded one
        return recipe
    from search.study.checkpoints import read_teacher

    with errors_at(f"{path}.teacher"):
        return {**recipe, "teacher": read_teacher(Path(name))}


def _inline_table(asked: Data, path: str, folder: Path) -> Data:
    """Return a study or a model with the table of its task, if that names a file."""
    match asked:
        case {"task": {"entries": {"file": name, **more}} as task} if not more:
            path = f"{path}task.entries.file"
            file = folder / _path(str(name), path)
            lines = _text(file, LARGEST_FILE, "table", path).replace(" ", "").split()
            return {**asked, "task": {**task, "entries": ";".join(lines)}}
    return asked


def _read_code(model: Data, path: str, folder: Path) -> Data:
    """Return a model with the text of the file that is its code, if it is this user's. Raise ValueError if not."""
    family = family_of(model)
    where = model.get(family) if isinstance(family, str) else None
    if not isinstance(where, str) or not is_file(where) or "code" in model:
        return model  # an importable one, or a record, which has the text

    path = f"{path}.{family}"
    file = folder / _path(where.partition(":")[0], path)
    text = _text(file, LARGEST_CODE, f"file of a {family}", path)
    digest = digest_of(text)
    # To read a study is to run its code: another user's file, or one that everyone can write, needs --trust.
    if is_own(file):
        trust(digest)
    elif not may_run(digest):
        raise error_at(path, f"{file} is not yours alone, and would be run: --trust runs it")
    return {**model, "code": text}


def _text(file: Path, most: int, what: str, path: str) -> str:
    """Return the text of a file. Raise ValueError at the key path."""
    try:
        return read_limited(file, most, what).decode()
    except (OSError, ValueError) as error:
        raise error_at(path, f"{file}: {error}") from None


def _inline_model(model: Data, path: str) -> Data:
    """Return a model with the checkpoint's spec, or the file's ties, that it names."""
    match model:
        case {"checkpoint": str(name), **changes}:
            path = f"{path}.checkpoint"
            place = _path(name, path)
            match _parsed(place / JSON_FILE if place.is_dir() else place, path):
                case {"spec": dict(spec)}:
                    return with_changes(spec, changes)
            raise error_at(path, f"{name}: not a checkpoint, which has a spec")
        case {"ties": str(name)}:
            path = f"{path}.ties"
            return {**model, "ties": _parsed(_path(name, path), path)}
    return model


def _path(name: str, path: str) -> Path:
    """Return the path that a key names. Raise ValueError at the key path for a tilde that stands for nobody."""
    with errors_at(path):
        return Path(expanded(name))


def _parsed(file: Path, path: str) -> Any:
    """Return the content of a file of JSON or YAML. Raise ValueError at the key path."""
    text = _text(file, LARGEST_FILE, "file of ties or of a spec", path)
    with errors_at(f"{path}: {file}"):
        return read_data(text)
