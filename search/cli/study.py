"""`adder-search studies`, `keys` and `models`: everything that a study file can name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from search.cli.options import STUDY, json_option, load_checkpoint, show
from search.errors import UserError, printable, reraise_as

if TYPE_CHECKING:
    from model import Spec
    from model.tied import Tied
    from search.study.file import Key


@click.command()
@json_option
def studies(as_json: bool) -> None:
    """List the studies that come with the package."""
    from search.study.described import aligned
    from search.study.file import load_study, shipped_studies
    from search.study.reading import read_data

    rows: list[dict[str, Any]] = []
    for name, text in shipped_studies().items():
        with reraise_as(name):
            data = read_data(text)  # not as a study: a module's code is run to count its parameters
        about = data.get("about", "") if isinstance(data, dict) else ""
        rows.append({"name": name, "about": printable(str(about))})

    if as_json:
        for row in rows:
            params = dict.fromkeys(spec.params for spec, _ in load_study(row["name"]).listed)
            row["params"] = next(iter(params)) if len(params) == 1 else list(params)
    show(as_json, rows, aligned([(row["name"], row["about"]) for row in rows]))


@click.command()
@click.argument("section", required=False)
@json_option
def keys(section: str | None, as_json: bool) -> None:
    """List the keys of a study file with their defaults, or those of one SECTION: seeds, recipe, recipe.lr.

    The beginning of a key is enough, and so is its last word; fields of a model are found by these too.
    """
    from search.study.described import aligned
    from search.study.file import every_key

    listed = every_key()
    if section is not None:
        listed = _matching(section, listed)
    rows = []
    for key in listed:
        default = "" if key.default in (None, []) else f" [{json.dumps(key.default)}]"
        rows.append((key.path, key.says + default))
    show(as_json, [asdict(key) for key in listed], aligned(rows))


def _matching(section: str, listed: Sequence[Key]) -> list[Key]:
    """Return the keys of a section, or else those that begin with it or end in it, a model's fields among them.

    Raise UserError, with the nearest keys, if there are none.
    """
    from model.fields import did_you_mean
    from model.spec import FAMILIES, load_families
    from search.study.file import Key

    if within := [key for key in listed if f"{key.path}.".startswith(f"{section}.")]:
        return within

    # Families share names of fields: each is listed once.
    of_models = {}
    load_families()
    for family in FAMILIES.values():
        for field in fields(family):
            if "help" in field.metadata:
                of_models[field.name] = Key(f"model.{field.name}", field.metadata["help"], field.default)
    every = (*listed, *of_models.values())
    if near := [key for key in every if key.path.startswith(section) or key.path.endswith(f".{section}")]:
        return near

    first = section.partition(".")[0]
    below = [key.path for key in listed if key.path.startswith(f"{first}.")]
    others = below or [key.path for key in listed if "." not in key.path]
    raise UserError(f"no key {section!r}; {did_you_mean(section, others)}")


@click.command()
@click.argument("name", type=STUDY, required=False, metavar="[PRESET]")
@json_option
def models(name: str | None, as_json: bool) -> None:
    """List families, constraints and presets; or show one PRESET's parameters, component by component."""
    from model import PRESETS

    if name:
        spec = _load_spec(name)
        show(as_json, [_described(name, spec)], list(_budget_lines(name, spec)))
    else:
        described = [_described(preset, spec) for preset, spec in PRESETS.items()]
        show(as_json, described, list(_listing()))


def _load_spec(name: str) -> Spec:
    """Return the spec of a preset, or of a checkpoint's folder."""
    from model import PRESETS, preset

    if name not in PRESETS and Path(name).exists():
        return load_checkpoint(Path(name), any_task=True).spec
    with reraise_as():
        return preset(name)


def _described(name: str, spec: Spec) -> dict[str, Any]:
    """Return a preset as plain values: parameters, budget by component, and the saving of each constraint."""
    from model.tied import Tied, count

    values = {"name": name, "family": spec.family, "params": spec.params, "count": asdict(count(spec))}
    values["budget"] = spec.layout.budget()
    values["constraints"] = {
        constraint: {"value": value, "saves": spec.saved_by(constraint)}
        for constraint, value in spec.applied().items()
    }  # fmt: skip
    if isinstance(spec, Tied):
        values |= {"base": spec.base.as_dict(), "ties": spec.spelt()}
    return values


def _listing() -> Iterator[str]:
    """Yield families with their constraints and sizes, then the presets."""
    from model import PRESETS
    from model.fields import spelt
    from model.spec import FAMILIES, load_families

    load_families()
    for family, cls in FAMILIES.items():
        yield f"{family}: {cls.about}"
        for name, field in cls.constraints().items():
            meta = field.metadata
            notes = [f"needs {spelt(other, value)}" for other, value in meta["needs"].items()]
            notes += [f"excludes {other}" for other in meta["excludes"]]
            notes.append(meta["source"])
            yield f"  {name:20} {meta['help']} ({'; '.join(notes)})"
        for field in cls.options():
            if field.name not in cls.constraints():
                yield f"  {field.name:20} {field.metadata['help']} [{field.default}]"
        presets = [name for name, spec in PRESETS.items() if spec.family == family]
        yield f"  presets: {', '.join(presets)}"
        yield ""
    yield "adder-search models PRESET shows a preset's parameters, component by component"


def _budget_lines(name: str, spec: Spec) -> Iterator[str]:
    """Yield the itemised budget, as in the 57p paper, section 2.8, and what each constraint takes away."""
    from model.fields import spelt
    from model.tied import Tied

    if isinstance(spec, Tied):
        yield from _tied_lines(name, spec)
        return

    yield from (f"{name}: {spec.family}, {spec.params:,} parameters", "")
    yield "component    shape     params  role"
    for (part, count), shape in zip(spec.layout.budget().items(), spec.layout.shapes, strict=True):
        size = " x ".join(map(str, shape))
        yield f"  {part:10} {size:9} {count:6,}  {spec.roles.get(part, '')}"
    yield from _totals(spec)
    yield "constraint                saves, with what needs it"
    for constraint, value in spec.applied().items():
        meaning = spec.constraints()[constraint].metadata["help"]
        yield f"  {spelt(constraint, value):20} {spec.saved_by(constraint):8,}  {meaning}"


def _tied_lines(name: str, spec: Tied) -> Iterator[str]:
    """Yield the budget of a tied spec by its base's tensors, and every tie."""
    from model import preset_name

    yield from (f"{name}: {preset_name(spec)}", "", "component    shape     params  shared  zero  role")
    budget, by_tensor = spec.layout.budget(), spec.by_tensor()
    for part, shape in spec.base.shapes().items():
        size = " x ".join(map(str, shape))
        numbers = by_tensor[part]
        new = budget.get(part, 0)
        zero = numbers.count(0)
        shared = len(numbers) - zero - new
        yield f"  {part:10} {size:9} {new:6,} {shared:7,} {zero:5,}  {spec.roles.get(part, '')}"
    yield from _totals(spec)
    yield from (f"  {tie}" for tie in spec.spelt())


def _totals(spec: Spec) -> Iterator[str]:
    """Yield the end of a budget: the parameters, and the four ways to count (docs/counting.md)."""
    from model.tied import count

    yield from (f"  {'total':10} {'':9} {spec.params:6,}", "")
    totals = count(spec)
    ties = f"{totals.inside:,} numbers with ties inside tensors, {totals.across:,} with ties across tensors"
    hidden = f"{totals.hidden:,} with hard-wired constants of trained tensors, {totals.constants:,} with all"
    yield from (f"{ties}, {hidden}", "")
