"""Study files of experiments: read by name, and written by the scripts that plan many arms."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from model import Spec, preset, preset_name
from search.study import spelling
from search.study.file import load_study
from search.study.schema import Study

LAB = Path(__file__).parent


@cache
def load_plan(name: str) -> Study:
    """Return the study of an experiment's folder, or one that comes with the package. Raises UserError."""
    return load_study(str(next(LAB.glob(f"*/{name}.yaml"), name)))


def toggled(spec: Spec, constraint: str) -> Spec:
    """Return a spec with a constraint, `tie_vo` or `qk_dim=4`, taken off, or applied.

    Raises ValueError where that is no comparison: with a constraint a net has fewer numbers than without it.
    """
    other = spelling.toggled(spec, constraint, "toggle")
    if other is None or other.params == spec.params:
        raise ValueError(f"{constraint} is no constraint of {preset_name(spec)}: with it there are no fewer numbers")
    return other


def changes(spec: Spec, base: str) -> dict[str, Any]:
    """Return a spec as a study file writes it: a preset, and what differs from it."""
    fields, of_base = spec.as_dict(), preset(base).as_dict()
    return {"preset": base} | {name: value for name, value in fields.items() if value != of_base[name]}


class _Plain(yaml.SafeDumper):
    """Writes equal values in full: study files have no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def write_plan(folder: Path, study: dict[str, Any], comment: str) -> None:
    """Write a study into a folder, as a file of its name that begins with a comment."""
    text = yaml.dump(study, Dumper=_Plain, sort_keys=False, default_flow_style=None, width=130)
    (folder / f"{study['name']}.yaml").write_text(f"# {comment}\n{text}", encoding="utf-8")
