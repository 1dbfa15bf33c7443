"""Descents as a tree: which θ began at which, and what was tied at each step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from search.store.candidates import TieCandidate
from search.store.candidates import lineage_of as line_of
from search.store.ledger import Ledger
from search.study.provenance import Step
from search.study.trial import Configuration

MOST_SAID = 4  # ties of a step that are written out


def lineages(
    ledger: Ledger, study: str, sets: Sequence[TieCandidate], configurations: Iterable[str]
) -> list[list[Step]]:
    """Of a study that looks for constraints, those of the best kept set of each size; of another one,
    those of these configurations; each from the oldest ancestor on.
    """
    if sets:
        best: dict[int, TieCandidate] = {}
        for tried in sorted((t for t in sets if t.start), key=lambda t: t.loss or 0.0):
            best.setdefault(tried.numbers, tried)
        return [[*_steps(sets, tried)] for _, tried in sorted(best.items(), reverse=True)]
    known = ledger.list_configurations(study)
    return [_own(study, known[key]) for key in configurations]


def _steps(sets: Sequence[TieCandidate], tried: TieCandidate) -> list[Step]:
    """What the papers of a kept set say, and of each step how many sets were tried from it."""
    assert tried.start
    steps = [dict(step) for step in tried.start.lineage]
    line = line_of(sets, tried.number)
    own = steps[len(steps) - len(line) :] if len(line) <= len(steps) else []
    for step, its in zip(own, line, strict=False):
        step["tried"] = sum(t.parent == its.number and t.reached is not None for t in sets)
    return steps


def _own(study: str, configuration: Configuration) -> list[Step]:
    from model import preset_name
    from search.study.start import ties_beyond_parent

    steps = [dict(s) for s in configuration.start.lineage] if configuration.start else []
    tied = ties_beyond_parent(steps[-1].get("spec") if steps else None, configuration.spec)
    how = list(steps[-1].pop("then", [])) if steps else []
    spec = configuration.spec
    own = {
        "model": preset_name(spec),
        "params": spec.params,
        "study": study,
        "configuration": configuration.key,
    }
    return [*steps, own | {"tied": tied, "how": how}]


def tree(found: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """Lineages as lines, each step once, below the one that it began at."""
    root: dict[str, Any] = {}
    for steps in found:
        at = root
        for step in steps:
            at = at.setdefault(_who(step), {"step": step, "below": {}})["below"]
    return "\n".join(_lines(root, ""))


def _who(step: Mapping[str, Any]) -> str:
    return str(step.get("theta_sha256") or (step.get("configuration"), step.get("params"), step.get("tied")))


def _lines(nodes: Mapping[str, Any], indent: str) -> list[str]:
    """One child goes on below its parent, several are set in."""
    lines = []
    several = len(nodes) > 1
    for n, node in enumerate(nodes.values()):
        last = n == len(nodes) - 1
        mark, more = ("└ " if last else "├ ", "  " if last else "│ ") if several else ("", "")
        lines.append(f"{indent}{mark}{said(node['step'])}")
        lines += _lines(node["below"], indent + more)
    return lines


def said(step: Mapping[str, Any]) -> str:
    """A step in a line: its size, where it is from, and what was done to come to it."""
    numbers, model = step.get("params"), str(step.get("model") or "")
    head = f"{numbers} numbers" if model == "" or "tied to" in model else model
    place = ", ".join(f"{name} {step[name]}" for name in ("study", "configuration", "seed") if step.get(name))
    ties = list(step.get("tied") or [])
    more = f" and {len(ties) - MOST_SAID} more" if len(ties) > MOST_SAID else ""
    done = [*map(str, step.get("how") or []), *([", ".join(ties[:MOST_SAID]) + more] if ties else [])]
    tried = f" ({step['tried']} sets tried from here)" if step.get("tried") else ""
    return f"{head}{f' [{place}]' if place else ''}{': ' if done else ''}{'; '.join(done)}{tried}"
