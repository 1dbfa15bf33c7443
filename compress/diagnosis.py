"""Diagnosis of a θ: live directions, dead numbers, freedoms, curvature, and the cheapest constraints."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from compress.hessian import constraints, expand_loss, live_directions, measured_loss
from model import preset_name
from model.spec import Spec
from model.tied import describe_new, ties_of

LIVE = 1e-6  # of the largest singular value
LARGEST = 1_024  # numbers: the time grows as their square
DEAD = 1e-9  # of the largest share of a number in the logits


@dataclass(frozen=True)
class Diagnosis:
    """Diagnosis of one θ.

    spectrum: the Hessian's eigenvalues, largest first. freedoms: directions in which no logit changes, each as
    its largest parts by number. cheapest: constraints with predicted and measured loss.
    """

    model: str
    params: int
    loss: float
    live: int
    dead: list[str]
    freedoms: list[dict[str, float]]
    spectrum: list[float]
    negative: int
    cheapest: list[dict[str, Any]]

    def text(self) -> str:
        """Return the diagnosis in lines to print."""
        moves = f"θ moves the answers along {self.live:,} of {self.params:,} directions"
        lines = [f"{self.model}: {moves}, loss {self.loss:.3g}"]
        lines.append(f"  dead numbers: {', '.join(self.dead) or 'none'}")
        for free in self.freedoms:
            parts = " ".join(f"{share:+.2f} {name}" for name, share in free.items())
            lines.append(f"  free direction: {parts}")
        curved = f"{self.spectrum[0]:.3g} to {self.spectrum[-1]:.3g}, {self.negative} negative"
        is_measured = any(c["measured"] is not None for c in self.cheapest)
        columns = ": predicted, measured" if is_measured else " (--try measures): predicted"
        lines += [
            f"  Hessian's eigenvalues: {curved}",
            "",
            f"increase of the loss{columns}, constraint",
        ]
        for c in self.cheapest:
            measured = f" {c['measured'] - self.loss:12.4g}" if is_measured else ""
            lines.append(f"  {c['predicted'] - self.loss:12.4g}{measured}  {c['says']}")
        return "\n".join(lines)


def diagnose(
    spec: Spec,
    theta_P: Tensor,
    kinds: tuple[str, ...],
    scope: str,
    limit: int,
    problems: int,
    measure: bool,
) -> Diagnosis:
    """Diagnose θ [P] of a spec on `problems` selection problems.

    kinds, scope, limit: constraints to list, as for `constraints`. measure: impose each of them, untrained, for its
    loss. Raises ValueError for a spec of more than LARGEST numbers, and where derivatives are not finite.
    """
    # Numbers are called by an entry that reads them: a tied spec has no names of its own.
    base, ties = ties_of(spec)
    if spec.params > LARGEST:
        raise ValueError(f"has {spec.params:,} numbers; a Hessian is computed of {LARGEST:,} at most")
    live, vectors_PK, reads_P = live_directions(spec, theta_P)
    at = expand_loss(spec, theta_P, problems)
    entries = base.layout.entries()
    first = dict[int, str]()  # of each number: the name of the entry that reads it first
    for entry, number in zip(entries, ties, strict=True):
        if number:
            first.setdefault(abs(number), entry)
    names = [first[k] for k in sorted(first)]
    least = DEAD * float(reads_P.max())
    cheapest = [
        {
            "says": ", ".join(describe_new(base, ties, c.ties)),
            "kind": c.kind,
            "predicted": at.loss + c.cost,
            "measured": measured_loss(spec, theta_P, c.ties, problems) if measure else None,
        }
        for c in constraints(at, kinds, scope, limit)
    ]
    count = int((live > LIVE * live.max()).sum())
    return Diagnosis(
        model=preset_name(spec),
        params=spec.params,
        loss=at.loss,
        live=count,
        dead=[name for name, read in zip(names, reads_P.tolist(), strict=True) if read <= least],
        freedoms=[_parts(v, names) for v in vectors_PK[:, count:].T],
        spectrum=at.values_R.flip(0).tolist(),
        negative=int((at.values_R < 0).sum()),
        cheapest=cheapest,
    )


def _parts(direction_P: Tensor, names: list[str]) -> dict[str, float]:
    """Return the largest parts of a direction, by number."""
    order = torch.argsort(direction_P.abs(), descending=True)[:6]
    parts = [(names[n], float(direction_P[n])) for n in order.tolist()]
    return {name: round(share, 4) for name, share in parts if abs(share) > 0.05}
