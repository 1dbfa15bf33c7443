"""Descents as a tree: the θ that each θ began at, and the ties of each step."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from model import preset_name
from search.store.study_records import StudyRecords
from search.study.ancestors import Step, after_lineage
from search.study.trial import Configuration

MOST_TIES = 4  # of a step that are written out


def lineages(records: StudyRecords, keys: Iterable[str]) -> list[list[Step]]:
    """Return the ancestors of configurations of a study, by their keys, each from the oldest on."""
    recorded = records.list_configurations()
    return [_of_configuration(records.study, recorded[key]) for key in keys]


def _of_configuration(study: str, configuration: Configuration) -> list[Step]:
    """Return the steps that a configuration's θ went through, its own last."""
    spec = configuration.spec
    step = {"model": preset_name(spec), "params": spec.params, "study": study, "configuration": configuration.key}
    lineage = configuration.start.lineage if configuration.start else ()
    return after_lineage(lineage, step, spec)


def tree(lines: Sequence[Sequence[Step]]) -> str:
    """Return lineages as lines of text, each step once, below the one that it began at."""
    root: dict[str, Any] = {}
    for steps in lines:
        nodes = root
        for step in steps:
            # A configuration, the last step, has no θ of its own: it is known by what it trains.
            identity = step.get("theta_sha256") or tuple(map(step.get, ("configuration", "params", "tied")))
            nodes = nodes.setdefault(str(identity), {"step": step, "below": {}})["below"]
    return "\n".join(_lines(root, ""))


def _lines(nodes: Mapping[str, Any], indent: str) -> list[str]:
    """Return one line per node: a single child below its parent, several indented."""
    lines = []
    for number, node in enumerate(nodes.values(), start=1):
        mark, more = "├ ", "│ "
        if len(nodes) == 1:
            mark, more = "", ""
        elif number == len(nodes):
            mark, more = "└ ", "  "
        lines.append(f"{indent}{mark}{describe(node['step'])}")
        lines += _lines(node["below"], indent + more)
    return lines


def describe(step: Step) -> str:
    """Return a step in a line: its size, its place, and how it was reached."""
    model = str(step.get("model") or "")
    is_named = model and "tied to" not in model
    numbers = step.get("params")
    count = f"{numbers:,}" if isinstance(numbers, int) else numbers
    text = model if is_named else f"{count} numbers"

    place = ", ".join(f"{name} {step[name]}" for name in ("study", "configuration", "seed") if step.get(name))
    if place:
        text += f" [{place}]"

    actions = list(map(str, step.get("how") or []))
    ties = list(step.get("tied") or [])
    if ties:
        more = f" and {len(ties) - MOST_TIES} more" if len(ties) > MOST_TIES else ""
        actions.append(", ".join(ties[:MOST_TIES]) + more)
    if actions:
        text += f": {'; '.join(actions)}"

    if step.get("tried"):
        text += f" ({step['tried']} sets tried from here)"
    return text
