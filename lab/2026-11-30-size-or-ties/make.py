"""Whether size or the kind of ties decides which nets grok: `python make.py` writes the plan's studies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from compress.hessian import measured_loss, possible
from lab.plans import write_plan
from model import Spec, preset
from model.tied import Tied, Ties, constrained, equated, free, zeroed
from trainer.checkpoints.checkpoint import Checkpoint

HERE = Path(__file__).parent
LAW = HERE.parent / "2026-11-24-law-of-size" / "law-small.yaml"
PARENT = HERE.parent / "certificates" / "46p"
"""The net from which the descent went to the known 38 numbers."""
PROBLEMS = 1_024
SIZES = (46, 44, 42, 40, 38)
SETS = 10
"""Sets of ties of a size."""
FIRST = 999_101
VECTORS = 64


def law() -> dict[str, Any]:
    """Return the study of 38 numbers and fewer of the law of size."""
    study: dict[str, Any] = yaml.safe_load(LAW.read_text(encoding="utf-8"))
    return study


def known() -> list[str]:
    """Return the eight ties of the known 38 numbers, in the order in which they are written."""
    return next(arm["model"]["ties"] for arm in law()["configurations"] if arm["name"] == "38")


def borne_best(count: int) -> list[str]:
    """Return those `count` of the known ties of which the parent's loss rises least, without training."""
    parent = Checkpoint.load(PARENT)

    def loss(chosen: Iterable[str]) -> float:
        ties = constrained(parent.spec, list(chosen))
        return measured_loss(parent.spec, parent.theta_P, ties, PROBLEMS)

    return list(min(combinations(known(), count), key=loss))


def drawn(size: int, number: int) -> list[str]:
    """Draw a set of ties of `size` numbers: one tie after the other, each alike likely of all that are possible."""
    base = preset("46p")
    random = np.random.default_rng([size, number])
    ties = free(base.params)
    while max(ties) > size:
        possible_ties = sorted(set(_singles(base, ties)))
        ties = possible_ties[random.integers(len(possible_ties))]
    return Tied(base=base, ties=ties).spelt()


def _singles(base: Spec, ties: Ties) -> Iterator[Ties]:
    """Yield the ties with one number fewer: one that is zero, or is plus or minus another of its tensor."""
    fewer = max(ties) - 1
    for first, last in _tensors(base):
        numbers = sorted({abs(k): p for p, k in enumerate(ties[:last]) if k and p >= first}.values())
        more = [zeroed(ties, p) for p in numbers]
        more += [equated(ties, p, q, sign) for p, q in combinations(numbers, 2) for sign in (1, -1)]
        for new in more:
            if max(new) == fewer and possible(base, new):
                yield new


def _tensors(base: Spec) -> Iterator[tuple[int, int]]:
    """Yield the first entry of each tensor of a base, and the one behind its last."""
    ends = np.cumsum([0, *base.layout.budget().values()]).tolist()
    yield from pairwise(ends)


def arms(size: int) -> Iterator[tuple[str, list[str]]]:
    """Yield a size's sets of ties by name. At 38 the descent's is all of the known ties, and so is the prefix."""
    count = 46 - size
    if not count:
        yield "none", []
        return
    yield "descent", borne_best(count)
    named = 1
    if count < len(known()):
        yield "prefix", known()[:count]
        named = 2
    for number in range(1, SETS - named + 1):
        yield f"random {number}", drawn(size, number)


def study(size: int) -> dict[str, Any]:
    """Return the study of a size."""
    listed = []
    for name, ties in arms(size):
        model: Any = {"base": "46p", "ties": ties} if ties else "46p"
        listed.append({"name": name, "model": model})
    return {
        "name": f"ties-{size}",
        "about": f"grok rates of sets of ties that leave {size} numbers",
        "recipe": law()["recipe"],
        "configurations": listed,
        "seeds": {"first": FIRST, "count": VECTORS},
        "stop": {"hopeless": False},
        "resources": {"cpu": 1, "gpu": "auto"},
    }


def write_studies() -> None:
    for size in SIZES:
        write_plan(HERE, study(size), f"Sets of ties that leave {size} numbers (README.md; by make.py).")


if __name__ == "__main__":
    write_studies()
