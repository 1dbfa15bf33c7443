"""Study files: what they ask, errors that name the file, the key path and what would be right, and every key."""

import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from model.fields import did_you_mean
from search.errors import UserError, printable, reraise_as
from search.plugins import STUDIES, loaded
from search.study.reading import QUOTED, Data, odd_character, read_data
from search.study.schema import LONGEST_NAME, NAMED_BY, Study
from search.study.space import Strict, error_at, errors_at
from search.study.spelling import LARGEST_FILE, inline_files
from search.study.stopping import Stop
from search.study.written import EXTENDS, MOST_EXTENDED, UNCHANGED, Changes, laid_over_base, remark_on
from trainer import Recipe
from trainer.files.paths import expanded

ESCAPED = re.compile(r"\\[xu]([0-9a-f]{4}|[0-9a-f]{2})")


def shipped_studies() -> dict[str, str]:
    """Return the YAML of the studies that come with the package and with others, by name."""
    return {name: file.read_text("utf-8") for name, file in _shipped().items()}


def _shipped() -> dict[str, Path]:
    """Return the files of those studies, by name: what they name is beside them."""
    folders = (files("studies"), *map(files, loaded(STUDIES).values()))
    found = (Path(str(file)) for folder in folders for file in folder.iterdir())
    return {file.stem: file for file in sorted(found, key=lambda file: file.stem) if file.suffix == ".yaml"}


@dataclasses.dataclass(frozen=True)
class Reader:
    """Reads study files.

    changes: what a command sets in them. recorded: returns the recorded definition of a study by name, or None; a file
    may extend it. say: gets a line on what a study changes in the one that it extends.
    """

    changes: Changes = UNCHANGED
    recorded: Callable[[str], Data | None] = lambda name: None
    say: Callable[[str], object] = lambda line: None

    def study(self, text: str, source: str, folder: Path = Path()) -> Study:
        """Return the study of a YAML text. Raise UserError naming source, key path and what would be right.

        folder: where files of modules, tables and trials are looked for.

        All keys of a wrong form are named at once. Values are compared with each other only when each has its form.
        """
        data = _mapping(text, source)
        base: Data = {}
        try:
            data = self.changes.named(data)
            if EXTENDS in data:
                base = self._extended(data, folder)
                data = laid_over_base(base, data)
            unasked = self.changes.set_in(data)
            if base:  # as it was read, so that both can be compared
                unasked = inline_files(unasked, folder, are_asked=False)
            data = inline_files(unasked, folder)
            study = Study.model_validate(data)
        except ValueError as error:
            lines = list(_lines(error, data))
        else:
            if base:
                self.say(f"{source}: {remark_on(base, unasked)}")
            return study
        remarked = [printable(f"{source}: {line}{_remark(line)}") for line in lines]
        raise UserError("\n".join(remarked))

    def _extended(self, data: Data, folder: Path, above: tuple[str, ...] = ()) -> Data:
        """Return the plain values of the study that a file extends, and of those that it extends itself.

        above: names of those that led to it. Raises ValueError at the key path, UserError.
        """
        name = data[EXTENDS]
        if not isinstance(name, str) or not name:
            raise error_at(EXTENDS, f"must be the name or path of a study, got {name!r:.80}")
        path = " -> ".join([*above, name])
        if name in above:
            raise error_at(EXTENDS, f"goes round in a circle ({path})")
        if len(above) == MOST_EXTENDED:  # a circle as well, if one file has many names, such as ./a.yaml and a.yaml
            raise error_at(EXTENDS, f"leads through more than {MOST_EXTENDED} studies ({path})")

        # A base may extend another one by a path, which is meant from the folder of its own file.
        with errors_at(EXTENDS):
            base, folder = self._base(name, folder)
        deeper = self._extended(base, folder, (*above, name)) if EXTENDS in base else {}
        with errors_at(EXTENDS):
            return inline_files(laid_over_base(deeper, base), folder, are_asked=False)

    def _base(self, name: str, folder: Path) -> tuple[Data, Path]:
        """Return the plain values of a study to be extended, recorded, shipped or a file, and its folder.

        Raises ValueError.
        """
        recorded = self.recorded(name)
        if recorded is not None:
            return recorded, folder

        shipped = _shipped()
        file = shipped.get(name, folder / expanded(name))
        try:
            text = _read_text(str(file))
        except UserError as error:
            raise ValueError(str(error)) from None
        if text is None:
            raise ValueError(
                f"{name!r} is no study of this home, none that comes with the package, and no file; "
                f"{did_you_mean(name, shipped)}"
            )
        return self.changes.named(_mapping(text, str(file))), file.parent


PLAIN = Reader()
"""Reads files as they are."""
parse_study = PLAIN.study


def shipped_study(name: str, reader: Reader = PLAIN) -> Study:
    """Return a study that comes with the package."""
    file = _shipped()[name]
    return reader.study(file.read_text("utf-8"), f"{name} (comes with the package)", file.parent)


def load_study(name: str, reader: Reader = PLAIN) -> Study:
    """Return a study by path, or by the name of a shipped one; of - or a pipe, which are read once. Raise UserError.

    reader: reads it; by default nothing is changed in it.
    """
    path = Path(name)
    text = _read_text(name)
    if text is not None:
        return reader.study(text, name, path.parent)

    shipped = shipped_studies()
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        near = did_you_mean(path.name, (file.name for file in path.parent.glob("*.y*ml")))
        if path.stem in shipped and not any(path.parent.glob(f"{path.stem}.y*ml")):
            near = f"did you mean {path.stem}, which comes with the package?"
        # Else it is a list of valid names: all studies of a folder.
        hint = f"; {near}" if near.startswith("did") else ""
        raise UserError(f"{name}: no such study file{hint}")

    if name not in shipped:
        near = did_you_mean(name, shipped)
        for file in (f"{name}.yml", f"{name}.yaml"):
            if Path(file).is_file():
                near = f"did you mean {file}?"
        raise UserError(f"unknown study {name!r}; {near}")
    return shipped_study(name, reader)


def name_in(file: str) -> str:
    """Return the name that a study file gives, which may be wrong otherwise. Raises UserError."""
    name = _mapping(_read_text(file) or "", file).get("name")
    if not isinstance(name, str):
        raise UserError(f"{file}: name: must be a string, got {name!r:.80}")
    return name


def _read_text(name: str) -> str | None:
    """Return the text of a study file, or of a stream: - is the standard input. None where there is nothing to read.

    Raises UserError for a folder that is no study's name, for a named pipe, and for what is too large or no text.
    """
    try:
        return _text(name)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{name}: cannot be read ({getattr(error, 'strerror', None) or error})") from None


def _text(name: str) -> str | None:
    path = Path(name)
    if not name:
        raise UserError("a study has a name, or a file: adder-search studies lists those that come with the package")
    if name == "-":
        data = sys.stdin.buffer.read(LARGEST_FILE + 1) if sys.stdin else b""
    elif not path.exists():
        return None
    elif path.is_dir():
        if name in shipped_studies():
            return None
        raise UserError(f"{name}: is a folder; give the path of a study file")
    elif path.is_fifo() and path.resolve().exists():  # opening it would wait for a writer that may never come
        raise UserError(f"{name}: is a pipe; give a study file, or - and the study on the standard input")
    else:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise UserError(f"{name}: larger than any study file ({LARGEST_FILE:,} bytes)")
    return data.decode()


def _mapping(text: str, source: str) -> Data:
    """Return the plain values of a text of YAML that is a mapping. Raises UserError."""
    with reraise_as(source):
        data = read_data(text)
    if not isinstance(data, dict):
        raise UserError(f"{source}: must be a mapping with name, model and seeds")
    return data


def _remark(line: str) -> str:
    """Return what is odd about a character of a key or value that a line shows."""
    unescaped = ESCAPED.sub(lambda found: chr(int(found[1], 16)), line)  # of values lines have Python's repr
    odd = odd_character(unescaped)
    return f"; it has {odd}" if odd else ""


def recorded_study(definition: str, source: str, changes: Changes = UNCHANGED) -> Study:
    """Return the study of a recorded JSON text, with what a command changes in it.

    Raise UserError, naming source and first problem, where this version refuses what an earlier one took.
    """
    data = without_unused_keys(json.loads(definition))
    try:
        if changes:  # a record by itself names no file
            data = inline_files(changes.set_in(inline_files(data, are_asked=False)))
        return Study.model_validate_json(json.dumps(data))
    except ValueError as error:
        line = next(_lines(error, data))
    raise UserError(printable(f"{source}: {line}"))


def without_unused_keys(definition: Data) -> Data:
    """Return a recorded definition without keys that no package brings now, unless it uses them.

    Definitions are recorded with all keys. A package that brought a kind or a stopping rule may be gone since.
    """
    kept = _used(definition, Study)
    if isinstance(kept.get("stop"), dict):
        kept["stop"] = _used(kept["stop"], Stop)
    return kept


def _used(values: Data, model: type[BaseModel]) -> Data:
    """Return values without unknown keys that are off. Those that are on stay, for the error that names them."""
    known = _fields(model)
    off: tuple[Any, ...] = (None, False, [])
    return {key: value for key, value in values.items() if key in known or value not in off}


KINDS = {
    "dict": "a mapping", "model": "a mapping", "list": "a list", "tuple": "a list", "string": "a string",
    "int": "an integer", "float": "a number", "bool": "true or false",
}  # fmt: skip


def _lines(error: ValueError, data: Any) -> Iterator[str]:
    """Yield a line for each problem, without the arms of a union that the input was never meant for."""
    if not isinstance(error, ValidationError):
        yield str(error)
        return
    wrong_type: dict[str, dict[str, Any]] = {}  # each arm has a problem of its own: by path, what would be right
    lines: dict[str, None] = {}
    for problem in error.errors():
        keys = _keys(problem, data)
        path = ".".join(keys)
        message = problem["msg"].removeprefix("Value error, ")
        kind, value = problem["type"], problem["input"]
        if kind == "extra_forbidden":
            of_recipe = len(keys) == 1 and keys[0] in {field.name for field in dataclasses.fields(Recipe)}
            hint = f"did you mean recipe.{path}?" if of_recipe else did_you_mean(keys[-1], _siblings(keys))
            is_repeated = hint.startswith("valid: ") and any(line.endswith(hint) for line in lines)
            message = "unknown key" if is_repeated else f"unknown key; {hint}"  # the list of valid ones once
        elif kind == "missing":
            message = "missing"
        elif path == "name" and kind == "string_pattern_mismatch":
            message = f"must be up to {LONGEST_NAME} {NAMED_BY}, and begin with a letter or digit, got {value!r:.80}"
        elif kind == "union_tag_not_found":
            message = f"must be a mapping or a list, got {value!r:.80}{_example(path)}"
        elif kind.endswith("_type") or kind == "literal_error":
            expected = KINDS.get(kind.removesuffix("_type"), message.removeprefix("Input should be "))
            wrong_type.setdefault(path, {})[expected] = value
            continue
        elif kind != "value_error":
            message = re.sub("^(Input|String) should", "must", message)
            message = f"{message[0].lower()}{message[1:]}, got {value!r:.80}"
        lines[f"{path}: {message}" if path else message] = None

    for path, kinds in wrong_type.items():
        others = [*lines, *(f"{other}:" for other in wrong_type if other != path)]
        # Another problem at the path or below it comes from the arm that was meant, and says more.
        if any(line.startswith((f"{path}:", f"{path}.")) for line in others):
            continue
        value = next(iter(kinds.values()))
        hint = _example(path)
        if not hint and "a string" in kinds and not isinstance(value, dict | list | None):
            hint = QUOTED
        lines[f"{path}: must be {' or '.join(kinds)}, got {value!r:.80}{hint}"] = None
    yield from lines


def _example(path: str) -> str:
    """Return what a key may look like that is often written in a wrong form."""
    examples = {
        "seeds": "{first: 1, count: 8}", "model": "57p", "toggle": "[tie_vo]", "combine": "[tie_vo, shared_norm]",
        "constraints": "[tie_vo]", "confirm": "{configurations: 3, seeds: {first: 90001, count: 64}}",
        "until": "{grokked: 1, max_seeds: 64}", "sampler": "{name: tpe}",
    }  # fmt: skip
    is_searched = path.count(".") == 2 and path.startswith("space.")  # space.recipe.lr
    example = "{choice: [0.01, 0.03]}" if is_searched else examples.get(path)
    return f"; for example {example}" if example else ""


def _keys(problem: Any, data: Any) -> list[str]:
    """Return the key path of a pydantic problem: the part of its location that the file has, or lacks.

    The rest are names of a union's arms, and `[key]` for a key that is wrong itself.
    """
    keys = []
    for place in problem["loc"]:
        places: Any = ()
        if isinstance(data, dict):
            places = data
        elif isinstance(data, list):
            places = range(len(data))
        if place in places:
            keys.append(str(place))
            data = data[place]
    if problem["type"] == "missing":
        keys.append(str(problem["loc"][-1]))
    return keys


def _siblings(keys: list[str]) -> list[str]:
    """Return the valid keys beside an unknown one."""
    fields = _fields(Study)
    for key in keys[:-1]:
        if key in fields:  # else a name of the file's, as in space.recipe.lr
            fields = _fields(*sections(fields[key].annotation))
    names = [name for name in fields if name != keys[-1]]  # of another arm of a union
    return [*names, EXTENDS] if len(keys) == 1 else names  # no field: it is gone before the keys are checked


def _fields(*models: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of sections, by key."""
    return {field.alias or name: field for model in models for name, field in model.model_fields.items()}


# Every key, read off the classes that check them

WITHIN = {
    "space": "space.FIELD", "configurations": "configurations.N",
    "scales": "scales.PRESET", "scales.PRESET.bases": "scales.PRESET.bases.NAME",
}  # fmt: skip
"""Sections whose keys stand below a name or number of the file."""


@dataclasses.dataclass(frozen=True)
class Key:
    """One key: its path, its description, and its default (None: required, or off)."""

    path: str
    says: str
    default: Any = None


def every_key() -> list[Key]:
    """Return all keys in the order of search/study/schema.py, the recipe's below `recipe`."""
    says = (
        "a study, shipped, recorded here or a file, whose keys but name and about this one has unless it gives them; "
        "null takes one away"
    )
    return [*_keys_of(Study, ""), Key(EXTENDS, says)]


def _keys_of(cls: type[Strict], prefix: str) -> Iterator[Key]:
    for name, field in _fields(cls).items():
        path = prefix + name
        inner = sections(field.annotation)
        says = field.description or str(inner[0].__doc__).partition("\n")[0]
        has_plain_default = isinstance(field.default, bool | int | float | str) and field.default != ""
        yield Key(path, says, field.default if has_plain_default else None)
        for section in inner:
            yield from _keys_of(section, f"{WITHIN.get(path, path)}.")
        if path == "recipe":
            defaults = Recipe().as_dict()
            for option in dataclasses.fields(Recipe):
                says = f"{option.metadata['help']}; unit: {option.metadata['unit']}"
                yield Key(f"recipe.{option.name}", says, defaults[option.name])


def sections(annotation: Any) -> list[type[Strict]]:
    """Return the section classes in a type annotation, however nested."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return [annotation]
    return [section for part in get_args(annotation) for section in sections(part)]
