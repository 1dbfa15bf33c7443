"""The Reflection's three thresholds (section 8) from a folder of certificates.

How few numbers can add, can be learned from random values, and can be kept up from a trained parent. What is
learned at its size from step 0 is kept apart from what one run reaches by ramps, and plain recipes from those
that copy a start or read columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adders.proof.file import own_verdict
from model.tied import Count, count
from model.verdict import claim_beside, is_right
from search.errors import UserError, reraise_as
from search.store.verdicts import own
from trainer.checkpoints.checkpoint import Checkpoint

PUBLISHED = {"representable": 40, "learnable": 75, "plainly": 75, "one run": None, "maintainable": 62}
"""Thresholds and the Reflection's numbers (section 8), where it has one."""
MEANINGS = {
    "representable": "some numbers, wherever they are from, add",
    "learnable": "gradient descent finds them from random values, at that size from step 0",
    "plainly": "so, with no tensor started at given values and no units recycled",
    "one run": "one run from random values reaches them, wide first, by ramps into ties that were found before",
    "maintainable": "gradient descent keeps them up from a trained parent",
}
SHOWN_BY = {"representable": set(MEANINGS), "learnable": {"learnable", "plainly"}}
"""Which certificates show a threshold; others are shown by their own."""
COLUMNS = ("inside", "across", "constants")
OURS = Path(__file__).with_name("certificates")
"""The notebook's own certificates, whose proofs its tests hold."""
STANDARDS = ("proved", "verified", "qualified")
"""Right on all 10^20 pairs, on all of AdderBoard's 10,010, on 99 % of these: the strictest first."""


@dataclass(frozen=True)
class Certificate:
    """A folder's checkpoint. standard: one of STANDARDS, by its proof.json and its verification.json."""

    name: str
    threshold: str
    standard: str
    count: Count

    def numbers(self, column: str) -> int:
        return int(asdict(self.count)[column])


def certificates(folder: Path) -> Iterator[Certificate]:
    """Yield the certificates in a folder's folders that are at least qualified. Raises UserError for a damaged one."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; name one whose folders are checkpoints with verification.json")
    for path in sorted(p for p in folder.iterdir() if (p / "verification.json").is_file()):
        with reraise_as():
            checkpoint = Checkpoint.load(path)
        try:
            verification = json.loads((path / "verification.json").read_text(encoding="utf-8"))
            is_verified, is_qualified = bool(verification["verified"]), bool(verification["qualified"])
        except (ValueError, TypeError, LookupError):
            raise UserError(f"{path / 'verification.json'}: not what `verify --json` says") from None
        if is_verified or is_qualified:
            standard = "proved" if is_proved(path, checkpoint) else "verified" if is_verified else "qualified"
            threshold = threshold_of(checkpoint)
            yield Certificate(path.name, threshold, standard, count(checkpoint.spec))


def is_proved(path: Path, checkpoint: Checkpoint) -> bool:
    """True if a checkpoint's folder has a proof of today's program that is the notebook's, or that was made here."""
    spec, theta_P = checkpoint.spec, checkpoint.theta_P
    claim = claim_beside(path, spec, theta_P)
    verdict = claim if path.resolve().parent == OURS.resolve() else own(claim)
    return bool(is_right(verdict) and own_verdict(verdict, spec, theta_P))


def threshold_of(checkpoint: Checkpoint) -> str:
    """Return the threshold that a checkpoint is evidence for, by its provenance and recipe."""
    provenance = checkpoint.provenance
    if "built_by_hand" in provenance:
        return "representable"
    if provenance.get("trained") != "from scratch":
        return "maintainable"
    if "stages" in provenance:
        return "one run"
    return "learnable" if is_helped(checkpoint) else "plainly"


def is_helped(checkpoint: Checkpoint) -> bool:
    """True if a recipe of its run starts a tensor at given values, or resets units by what they do in columns."""
    provenance = checkpoint.provenance
    while "moved_from" in provenance:
        provenance = provenance["moved_from"]["provenance"]
    recipes = [*(stage["recipe"] for stage in provenance.get("stages", ())), checkpoint.recipe]
    return any(r.get("recycle_every") or any(row[1] == "at" for row in r.get("init", ())) for r in recipes)


def thresholds(folder: Path) -> list[dict[str, Any]]:
    """Return a row for each threshold and standard: the published number, and the smallest certificate by each
    way to count. Every certificate shows what is representable. A published number may be None. A row of a
    standard is left out where a stricter one has nothing larger.
    """
    existing, rows = list(certificates(folder)), list[dict[str, Any]]()
    for threshold, published in PUBLISHED.items():
        for n, standard in enumerate(STANDARDS):
            candidates = [
                c
                for c in existing
                if c.standard in STANDARDS[: n + 1] and c.threshold in SHOWN_BY.get(threshold, {threshold})
            ]
            if not candidates:
                continue
            smallest = {
                column: min(candidates, key=lambda c: (c.numbers(column), STANDARDS.index(c.standard), c.name))
                for column in COLUMNS
            }
            if any(c.standard == standard for c in smallest.values()):
                cells = {k: {"numbers": c.numbers(k), "certificate": c.name} for k, c in smallest.items()}
                about = {"threshold": threshold, "standard": standard, "published": published}
                rows.append(about | cells)
    return rows


def text(rows: list[dict[str, Any]]) -> str:
    """Return the table for a terminal."""
    head = f"{'threshold':14} {'standard':10} {'published':>9}" + "".join(f"  {c:22}" for c in COLUMNS)
    lines = [head.rstrip()]
    for row in rows:
        cells = [f"{row[c]['numbers']} ({row[c]['certificate']})" for c in COLUMNS]
        about = f"{row['threshold']:14} {row['standard']:10} {row['published'] or '–':>9}"
        lines.append((about + "".join(f"  {c:22}" for c in cells)).rstrip())
    lines += ["", *(f"{name}: {meaning}" for name, meaning in MEANINGS.items())]
    return "\n".join(lines)
