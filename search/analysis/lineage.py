"""Descents as a tree: the θ that each θ began at, and the ties of each step."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from model import preset_name
from search.store.study_records import StudyRecords
from search.study.ancestors import Step
from search.study.start import ties_beyond_parent
from search.study.trial import Configuration

MOST_TIES = 4  # of a step that are written out


def lineages(records: StudyRecords, keys: Iterable[str]) -> list[list[Step]]:
    """Return the ancestors of configurations of a study, by their keys, each from the oldest on."""
    recorded = records.list_configurations()
    return [_of_configuration(records.study, recorded[key]) for key in keys]


def _of_configuration(study: str, configuration: Configuration) -> list[Step]:
    spec = configuration.spec
    steps = [dict(s) for s in configuration.start.lineage] if configuration.start else []
    tied = ties_beyond_parent(steps[-1].get("spec") if steps else None, spec)
    how = list(steps[-1].pop("then", [])) if steps else []
    step = {
        "model": preset_name(spec),
        "params": spec.params,
        "study": study,
        "configuration": configuration.key,
    }
    return [*steps, step | {"tied": tied, "how": how}]


def tree(lines: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """Return lineages as lines of text, each step once, below the one that it began at."""
    root: dict[str, Any] = {}
    for steps in lines:
        nodes = root
        for step in steps:
            identity = step.get("theta_sha256") or tuple(map(step.get, ("configuration", "params", "tied")))
            nodes = nodes.setdefault(str(identity), {"step": step, "below": {}})["below"]
    return "\n".join(_lines(root, ""))


def _lines(nodes: Mapping[str, Any], indent: str) -> list[str]:
    """Return a line a node: a single child below its parent, several indented."""
    lines = []
    for node in nodes.values():
        is_last = node is list(nodes.values())[-1]
        mark, more = ("└ " if is_last else "├ ", "  " if is_last else "│ ") if len(nodes) > 1 else ("", "")
        lines.append(f"{indent}{mark}{describe(node['step'])}")
        lines += _lines(node["below"], indent + more)
    return lines


def describe(step: Mapping[str, Any]) -> str:
    """Return a step in a line: its size, its place, and how it was reached."""
    numbers, model = step.get("params"), str(step.get("model") or "")
    size = f"{numbers:,}" if isinstance(numbers, int) else numbers
    head = f"{size} numbers" if model == "" or "tied to" in model else model
    place = ", ".join(f"{name} {step[name]}" for name in ("study", "configuration", "seed") if step.get(name))
    ties = list(step.get("tied") or [])
    more = f" and {len(ties) - MOST_TIES} more" if len(ties) > MOST_TIES else ""
    actions = [*map(str, step.get("how") or []), *([", ".join(ties[:MOST_TIES]) + more] if ties else [])]
    tried = f" ({step['tried']} sets tried from here)" if step.get("tried") else ""
    return f"{head}{f' [{place}]' if place else ''}{': ' if actions else ''}{'; '.join(actions)}{tried}"
