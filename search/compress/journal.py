"""What a descent knows, in one file beside its checkpoint: every θ that was kept, every set tried."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from model.tied import Ties
from search.errors import UserError
from trainer.files import durable

FILE, FORMAT = "descent.json", 2


@dataclass
class Kept:
    """A set of ties that was accepted: θ of the base [P] on it, and where it came from."""

    ties: Ties
    theta: list[float]
    numbers: int
    loss: float
    parent: int | None = None
    """The number of the kept set from which its training started."""
    seed: int | None = None
    visits: int = 0
    """Rounds that went on from here."""
    beside: list[list[float]] = field(default_factory=list)
    """θ on the same set of the other starts that must bear it."""
    empty: bool = False
    """Whether everything that can be proposed from here was tried."""
    finished: bool = False
    """Whether curvature took it there after its training."""

    def __post_init__(self) -> None:
        self.ties = tuple(self.ties)

    @property
    def starts(self) -> list[list[float]]:
        return [self.theta, *self.beside]


@dataclass
class Journal:
    """settings: what was asked for; origin: SHA-256 of the θ at which it began; tried: by a set's digest, the
    exact match that it reached; seconds: spent training and finishing, in all.
    """

    origin: str
    settings: dict[str, Any]
    kept: list[Kept] = field(default_factory=list)
    tried: dict[str, float] = field(default_factory=dict)
    rounds: int = 0
    shrunk: int = 0
    """The round in which the smallest set last lost a number."""
    several: int = 8
    seconds: float = 0.0
    core_seconds: float = 0.0
    """The same, of processors that really worked on it."""
    seed_steps: int = 0

    def write(self, folder: Path) -> None:
        """Replace the file in one instant, so that it outlasts a power cut."""
        durable.write(folder / FILE, (json.dumps({"format": FORMAT, **asdict(self)}) + "\n").encode())

    @classmethod
    def read(cls, folder: Path) -> Journal | None:
        """The folder's, or None. Raises UserError for a file that is none."""
        path = folder / FILE
        if not path.exists():
            return None
        try:
            about = json.loads(path.read_text())
            if about.pop("format") != FORMAT:
                raise ValueError
            kept = [Kept(**k) for k in about.pop("kept")]
            return cls(**about, kept=kept)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise UserError(f"{path}: not the record of a descent of format {FORMAT}") from None

    def lineage(self, n: int) -> list[int]:
        """The kept sets from the first to the n-th, each the parent of the next."""
        line = [n]
        while (parent := self.kept[line[0]].parent) is not None:
            line.insert(0, parent)
        return line

    def smallest(self) -> int:
        """The number of the kept set with the fewest numbers, and among those the lowest loss."""
        return min(range(len(self.kept)), key=lambda n: (self.kept[n].numbers, self.kept[n].loss))


def digest(ties: Ties) -> str:
    """What a set is remembered by: sets that reach the same subspace are one."""
    return hashlib.sha256(json.dumps(ties).encode()).hexdigest()[:16]
