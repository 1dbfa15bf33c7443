"""What constraints cost in five bases: `python make.py` writes the plan's ten studies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from model import Spec, preset

HERE = Path(__file__).parent
BASES = (10, 2, 3, 5, 7)
CONSTRAINTS = ("tie_vo", "tie_qk", "qk_dim=4", "rank1_out", "shared_norm", "no_ffn_bias", "frozen_spiral")
FIRST = 998_401
VECTORS = {"67p": 96, "170p": 48}
"""By scale, in the order in which they are trained."""
TABLE = HERE.parents[1] / "studies" / "constraints.yaml"
ANY_BASE = {
    "finish_above": 1,
    "recycle_every": 0,
    "recycle_from": 4_000,
    "recycle_until": 16_000,
    "recycle_unless": [],
}
"""Recycling reads a probe of base ten; the finish is addition's in base ten."""


def toggled(spec: Spec, constraint: str) -> Spec:
    """Return a spec with a constraint taken off, or applied."""
    name, _, value = constraint.partition("=")
    return spec.toggled(name, int(value) if value else True)


def changes(spec: Spec, base: str) -> dict[str, Any]:
    """Return a spec as a study file writes it: a preset, and what differs from it."""
    fields, of_base = spec.as_dict(), preset(base).as_dict()
    return {"preset": base} | {name: value for name, value in fields.items() if value != of_base[name]}


def arms(scale: str) -> Iterable[tuple[str, Spec]]:
    """Yield the arms of a scale by name: as it is, with each constraint toggled, and with one head where it has two."""
    spec = preset(scale)
    yield "none", spec
    for constraint in CONSTRAINTS:
        yield constraint, toggled(spec, constraint)
    if getattr(spec, "heads") == 2:  # noqa: B009
        yield "one head", replace(spec, heads=1)  # type: ignore[call-arg]


def study(scale: str, base: int) -> dict[str, Any]:
    """Return the study of a scale in a base."""
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return {
        "name": f"{scale}-base-{base}",
        "about": f"what constraints cost at {scale} in base {base}",
        "task": {"name": "addition", "base": base},
        "recipe": table["recipe"] | table["scales"][scale].get("recipe", {}) | ANY_BASE,
        "configurations": [{"name": name, "model": changes(spec, scale)} for name, spec in arms(scale)],
        "seeds": {"first": FIRST, "count": VECTORS[scale]},
        "stop": {"hopeless": False},
        "resources": {"cpu": 1, "gpu": "auto"},
    }


class Plain(yaml.SafeDumper):
    """Writes equal values in full: study files have no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def write_studies() -> None:
    for scale in VECTORS:
        for base in BASES:
            text = yaml.dump(study(scale, base), Dumper=Plain, sort_keys=False, default_flow_style=None, width=130)
            head = (
                f"# {scale} in base {base}: the table of constraints' recipe, each toggled (README.md; by make.py).\n"
            )
            (HERE / f"{scale}-base-{base}.yaml").write_text(head + text, encoding="utf-8")


if __name__ == "__main__":
    write_studies()
