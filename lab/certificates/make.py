"""Table of the certificates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab.tables import markdown
from model.tied import count
from trainer.checkpoints.checkpoint import Checkpoint

FOLDER = Path(__file__).parent


def certificates() -> str:
    """Return a line a certificate, the largest first: numbers by the three ways to count, origin, what is right."""
    lines = []
    for path in sorted(path.parent for path in FOLDER.glob("*/checkpoint.json")):
        checkpoint = Checkpoint.load(path)
        verification = json.loads((path / "verification.json").read_text())
        numbers = count(checkpoint.spec)
        extended = sum(right for right, _ in verification["extended"].values())
        lines.append(
            (
                f"[{path.name}]({path.name})",
                f"{numbers.inside} / {numbers.across} / {numbers.constants}",
                origin(checkpoint.provenance),
                checkpoint.seed.get("init_seed", "–"),
                f"{verification['correct']:,}",
                f"{extended:,}" if extended else "–",
            )
        )
    lines.sort(key=lambda line: -int(line[0].partition("p")[0][1:]))
    head = ("certificate", "inside / across / with constants", "origin", "seed", "of 10,010", "of 111,000")
    return markdown(head, lines)


def origin(provenance: dict[str, Any]) -> str:
    """Return how a checkpoint was made, by its provenance."""
    if "built_by_hand" in provenance:
        return "built by hand"
    if "folded_from" in provenance:
        return "54p, folded"
    if "stages" in provenance:
        return "from scratch, wide, then ramps, in one run"
    if "compressed_from" in provenance:
        return (
            f"compress: {provenance['sets_tried']:,} sets, {provenance['seed_steps'] / 1e6:.1f} million steps"
        )
    if "moved_from" in provenance:
        return "rewritten with a constraint that a person saw"
    if "finished_from" in provenance:
        return "from scratch, trained on"
    return f"from scratch ({provenance['study']})"
