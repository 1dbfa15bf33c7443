"""The Reflection's three thresholds (section 8) from a folder of certificates: how few numbers can add, can
be learned from random values, and can be kept up from a trained parent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from model.tied import Count, count
from search.errors import UserError, reraise_as
from trainer.checkpoints.checkpoint import Checkpoint

PUBLISHED = {"representable": 40, "learnable": 75, "maintainable": 62}  # Reflection, section 8
MEANS = {
    "representable": "some numbers, wherever they are from, add",
    "learnable": "gradient descent finds them from random values in one run",
    "maintainable": "gradient descent keeps them up from a trained parent",
}
COLUMNS = ("inside", "across", "constants")


@dataclass(frozen=True)
class Certificate:
    """What a folder holds. standard: verified or qualified (99 %), by its verification.json."""

    name: str
    origin: str
    standard: str
    correct: int
    count: Count

    def reaches(self, threshold: str) -> bool:
        """Whether it shows something of a threshold: all of them show what is representable."""
        return threshold in ("representable", self.origin)


def certificates(folder: Path) -> Iterator[Certificate]:
    """Those in a folder's folders that are at least qualified. Raises UserError for one that is damaged."""
    if not folder.is_dir():
        raise UserError(
            f"{folder}: no such folder; name one whose folders are checkpoints with verification.json"
        )
    for path in sorted(p for p in folder.iterdir() if (p / "verification.json").is_file()):
        with reraise_as():
            checkpoint = Checkpoint.load(path)
        try:
            its = json.loads((path / "verification.json").read_text())
            verified, qualified, correct = bool(its["verified"]), bool(its["qualified"]), int(its["correct"])
        except (ValueError, TypeError, LookupError):
            raise UserError(f"{path / 'verification.json'}: not what `verify --json` says") from None
        if verified or qualified:
            standard = "verified" if verified else "qualified"
            origin = origin_of(checkpoint.provenance)
            yield Certificate(path.name, origin, standard, correct, count(checkpoint.spec))


def origin_of(provenance: dict[str, Any]) -> str:
    """The threshold of which a checkpoint is evidence, by its papers."""
    if "built_by_hand" in provenance:
        return "representable"
    return "learnable" if provenance.get("trained") == "from scratch" else "maintainable"


def thresholds(folder: Path) -> list[dict[str, Any]]:
    """A row for each threshold and standard: the published number, and the smallest certificate by each way
    to count; none for qualified where nothing smaller is qualified than is verified.
    """
    known, rows = list(certificates(folder)), list[dict[str, Any]]()
    for threshold, published in PUBLISHED.items():
        for standards in (("verified",), ("verified", "qualified")):
            mine = [c for c in known if c.reaches(threshold) and c.standard in standards]
            least = {c: _least(mine, c) for c in COLUMNS}
            if mine and (len(standards) == 1 or any(its.standard == "qualified" for its in least.values())):
                shown = {c: {"numbers": asdict(m.count)[c], "certificate": m.name} for c, m in least.items()}
                rows.append(
                    {"threshold": threshold, "standard": standards[-1], "published": published, **shown}
                )
    return rows


def _least(known: list[Certificate], column: str) -> Any:
    """Verified before qualified where both are as small."""
    return min(
        known, key=lambda c: (asdict(c.count)[column], c.standard == "qualified", c.name), default=None
    )


def text(rows: list[dict[str, Any]]) -> str:
    """The table for a terminal."""
    head = f"{'threshold':14} {'standard':10} {'published':>9}" + "".join(f"  {c:22}" for c in COLUMNS)
    lines = [head.rstrip()]
    for row in rows:
        cells = [f"{row[c]['numbers']} ({row[c]['certificate']})" for c in COLUMNS]
        line = f"{row['threshold']:14} {row['standard']:10} {row['published']:9}" + "".join(
            f"  {c:22}" for c in cells
        )
        lines.append(line.rstrip())
    lines += ["", *(f"{name}: {says}" for name, says in MEANS.items())]
    return "\n".join(lines)
