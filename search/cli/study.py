"""`adder-search studies`, `keys` and `models`: everything that a study file can name."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from search.cli.options import json_option
from search.errors import UserError, reraise_as

if TYPE_CHECKING:
    from model import Spec
    from model.tied import Tied
    from search.study.schema import Study


@click.command()
@json_option
def studies(as_json: bool) -> None:
    """List the studies that come with the package."""
    from search.study.file import load_study, shipped_studies

    def params(study: Study) -> int | list[int]:
        listed = list(dict.fromkeys(spec.params for spec, _ in study.listed()))
        return listed[0] if len(listed) == 1 else listed

    shipped = [load_study(name) for name in shipped_studies()]
    if as_json:
        click.echo(json.dumps([{"name": s.name, "about": s.about, "params": params(s)} for s in shipped]))
        return
    width = max(len(s.name) for s in shipped)
    for s in shipped:
        click.echo(f"{s.name:{width}} {s.about}")


@click.command()
@click.argument("section", required=False)
@json_option
def keys(section: str | None, as_json: bool) -> None:
    """List the keys of a study file with their defaults, or those of one SECTION: recipe, seeds, space."""
    from model.fields import did_you_mean
    from search.study.keys import every_key

    listed = every_key()
    if section is not None:
        sections = dict.fromkeys(k.path.partition(".")[0] for k in listed)
        if section not in sections:
            raise UserError(f"no key {section!r}; {did_you_mean(section, sections)}")
        listed = [k for k in listed if k.path.partition(".")[0] == section]
    if as_json:
        click.echo(json.dumps([asdict(k) for k in listed]))
        return
    width = max(len(k.path) for k in listed)
    for key in listed:
        default = "" if key.default is None else f" [{json.dumps(key.default)}]"
        click.echo(f"{key.path:{width}}  {key.says}{default}")


@click.command()
@click.argument("name", required=False, metavar="[PRESET]")
@click.option("--diff", metavar="PRESET", help="Show how PRESET differs from this one.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON: a list of presets, or of the one that is named."
)
def models(name: str | None, diff: str | None, as_json: bool) -> None:
    """List families, constraints and presets; or show one PRESET's parameters, component by component."""
    from model import PRESETS

    if diff and not name:
        raise UserError("--diff compares two presets: adder-search models PRESET --diff PRESET")
    if name and diff:
        between = _differences(_load_spec(name), _load_spec(diff))
        click.echo(json.dumps(between) if as_json else _diff_text(name, diff, between))
    elif as_json:
        named = [_described(n, _load_spec(n)) for n in ([name] if name else PRESETS)]
        click.echo(json.dumps(named if name else named + _by_hand()))
    else:
        click.echo(_budget_text(name, _load_spec(name)) if name else _listing())


def _load_spec(name: str) -> Spec:
    """Return the spec of a preset, or of a checkpoint's folder."""
    from model import PRESETS, preset

    if name not in PRESETS and Path(name).exists():
        from search.cli.options import load_checkpoint

        return load_checkpoint(Path(name)).spec
    with reraise_as():
        return preset(name)


def _described(name: str, spec: Spec) -> dict[str, Any]:
    """Return a preset as plain values: parameters, budget by component, and the saving of each constraint."""
    from model.tied import Tied, count

    applied = {c: {"value": v, "saves": spec.saved_by(c)} for c, v in spec.applied().items()}
    fields_ = {
        "name": name, "family": spec.family, "params": spec.params, "budget": spec.layout.budget(),
        "constraints": applied,
    }  # fmt: skip
    if not isinstance(spec, Tied):
        return fields_
    return {**fields_, "base": spec.base.as_dict(), "ties": spec.spelt(), "count": asdict(count(spec))}


def _by_hand() -> list[dict[str, Any]]:
    """Return the models of the family `forged`: forgeformer and the ten-digit adder."""
    from model.forged import FORGINGS, Forging
    from model.forged_adder import SPEC

    forgings = [
        {"name": f"forgeformer {f.name}", "family": Forging.family, "params": f.params, "budget": f.budget(),
         "constraints": {}}
        for f in FORGINGS.values()
    ]  # fmt: skip
    return [*forgings, {**_described(f"forged {SPEC.params}p", SPEC), "family": Forging.family}]


def _differences(a: Spec, b: Spec) -> dict[str, Any]:
    """Return the fields and components that differ between two specs, each with both values."""

    def pairs(first: dict[str, Any], second: dict[str, Any], absent: Any = None) -> dict[str, list[Any]]:
        names = [k for k in {**first, **second} if first.get(k) != second.get(k)]
        return {k: [first.get(k, absent), second.get(k, absent)] for k in names}

    return {
        "params": [a.params, b.params],
        "fields": pairs(a.as_dict(), b.as_dict()),
        "budget": pairs(a.layout.budget(), b.layout.budget(), 0),
    }


def _listing() -> str:
    """Families with their constraints and sizes, then the presets."""
    from model import PRESETS
    from model.fields import spelt
    from model.spec import FAMILIES

    lines = []
    for family, cls in FAMILIES.items():
        lines += [f"{family}: {cls.about}"]
        for name, field in cls.constraints().items():
            meta = field.metadata
            rules = [f"needs {spelt(n, v)}" for n, v in meta["needs"].items()]
            rules += [f"excludes {n}" for n in meta["excludes"]]
            notes = "; ".join([*rules, meta["source"]])
            lines.append(f"  {name:20} {meta['help']} ({notes})")
        for field in fields(cls):
            if field.name not in cls.constraints():
                lines.append(f"  {field.name:20} {field.metadata['help']} [{field.default}]")
        lines += [f"  presets: {', '.join(n for n, s in PRESETS.items() if s.family == family)}", ""]
    names = ", ".join(f"{r['name']} ({r['params']})" for r in _by_hand())
    lines += ["forged: weights written by hand, see adder-search forge", f"  {names}", ""]
    return "\n".join(
        [*lines, "adder-search models PRESET shows a preset's parameters, component by component"]
    )


def _budget_text(name: str, spec: Spec) -> str:
    """The itemised budget, as in the 57p paper, section 2.8, and what each constraint takes away here."""
    from model.fields import spelt
    from model.tied import Tied

    if isinstance(spec, Tied):
        return _tied_text(name, spec)
    lines = [f"{name}: {spec.family}, {spec.params} parameters", "", "component    shape     params  role"]
    for (part, count), shape in zip(spec.layout.budget().items(), spec.layout.shapes, strict=True):
        size = " x ".join(map(str, shape))
        lines.append(f"  {part:10} {size:9} {count:6}  {spec.roles[part]}")
    lines += [
        f"  {'total':10} {'':9} {spec.params:6}",
        "",
        "constraint                saves, with what needs it",
    ]
    for constraint, value in spec.applied().items():
        says = spec.constraints()[constraint].metadata["help"]
        lines.append(f"  {spelt(constraint, value):20} {spec.saved_by(constraint):8}  {says}")
    return "\n".join(lines)


def _tied_text(name: str, spec: Tied) -> str:
    """The budget of a tied spec by its base's tensors, the three ways to count, and every tie."""
    from model import preset_name
    from model.tied import count

    lines = [f"{name}: {preset_name(spec)}", "", "component    shape     params  shared  zero  role"]
    budget, by_tensor = spec.layout.budget(), spec.by_tensor()
    for part, shape in spec.base.shapes().items():
        size, numbers = " x ".join(map(str, shape)), by_tensor[part]
        new, zero = budget.get(part, 0), numbers.count(0)
        counts = f"{new:6} {len(numbers) - zero - new:7} {zero:5}"
        lines.append(f"  {part:10} {size:9} {counts}  {spec.roles[part]}")
    totals = count(spec)
    lines += [
        f"  {'total':10} {'':9} {spec.params:6}",
        "",
        f"{totals.inside} numbers with ties inside tensors, {totals.across} with ties across tensors,"
        f" {totals.constants} with hard-wired constants",
        "",
        *(f"  {tie}" for tie in spec.spelt()),
    ]
    return "\n".join(lines)


def _diff_text(first: str, second: str, differences: dict[str, Any]) -> str:
    """Return the differences in two columns: first preset, second preset."""
    lines = [f"{'':20} {first:>10} {second:>10}"]
    shown = {True: "yes", False: "no", None: "-"}
    for field, values in differences["fields"].items():
        lines.append(
            f"  {field:18} "
            + " ".join(f"{shown.get(v, v) if isinstance(v, bool | None) else v!s:>10}" for v in values)
        )
    lines.append("parameters")
    for part, counts in differences["budget"].items():
        lines.append(f"  {part:18} {counts[0]:10} {counts[1]:10}")
    return "\n".join([*lines, f"  {'total':18} {differences['params'][0]:10} {differences['params'][1]:10}"])
