"""Table of the certificates. Run this file to verify all of them again and to count the digits that they need."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import torch

from lab.tables import markdown
from lab.thresholds import is_helped
from model import Spec, verify
from model.tied import Tied, count
from trainer.checkpoints.checkpoint import Checkpoint

FOLDER = Path(__file__).parent
DIGITS = FOLDER / "digits.csv"
PROOFS = FOLDER / "proofs.csv"


def certificates() -> str:
    """Return a line a certificate, the largest first: numbers by the ways to count, bits, origin, what is right."""
    digits = dict(pd.read_csv(DIGITS).itertuples(index=False))
    lines = []
    for path in folders():
        checkpoint = Checkpoint.load(path)
        verification = json.loads((path / "verification.json").read_text(encoding="utf-8"))
        numbers = count(checkpoint.spec)
        lines.append(
            (
                f"[{path.name}]({path.name})",
                f"{numbers.inside} / {numbers.across} / {numbers.hidden} / {numbers.constants}",
                bits(checkpoint.spec, digits[path.name]) if path.name in digits else "–",
                origin(checkpoint) + (", helped" if is_helped(checkpoint) else ""),
                checkpoint.seed.get("init_seed", "–"),
                f"{verification['correct']:,}",
                f"{sum(right for right, _ in verification['extended'].values()):,}",
                f"{verification['margin']:.2g}",
            )
        )
    lines.sort(key=lambda line: -int(line[0].partition("p")[0][1:]))
    counts = "inside / across / hidden / constants"
    head = ("certificate", counts, "bits", "origin", "seed", "of 10,010", "of 111,000", "margin")
    return markdown(head, lines)


def proofs() -> str:
    """Return a line a certificate and a published checkpoint: the verdict on all pairs and its check."""
    lines = []
    for row in pd.read_csv(PROOFS, dtype=str, keep_default_na=False).to_dict("records"):
        verdict, wrong = f"{row['verdict']} ({row['level']})", "–"
        if row["answer"]:
            sum_ = int(row["wrong_a"]) + int(row["wrong_b"])
            pair = f"{row['wrong_a']} + {row['wrong_b']} = {sum_}, decoded {row['answer']}"
            verdict = f"**{row['verdict']}** {pair}"
        if row["count"]:
            least, most = (float(row[name]) / 1e20 for name in ("count", "count_possible"))
            wrong = f"{least:.3g} to {most:.3g}" if least < most else f"{int(row['count']):,}"
        seconds, parts = row["check_seconds"], row["parts"]
        checks = {"checked": f"CHECKED, {seconds} s, {int(parts or 0):,} parts", "run": "run"}
        worst = f"{float(row['margin']):.2g}, Z{row['digit']} of {row['a']} + {row['b']}"
        boxes = f"{int(row['boxes']):,}" if row["verdict"] == "PROVED" else "–"
        lines.append(
            (row["net"], verdict, wrong, worst, boxes, f"{row['seconds']} s", checks.get(row["check"], row["check"]))
        )
    return markdown(("net", "verdict (level)", "wrong of 10^20", "smallest margin", "boxes", "prover", "check"), lines)


def folders() -> list[Path]:
    return sorted(path.parent for path in FOLDER.glob("*/checkpoint.json"))


def bits(spec: Spec, digits: int) -> str:
    """Return the bits of a spec's numbers at so many digits each, and of the choice of its ties: each entry is 0 or
    plus or minus one of the numbers.
    """
    numbers = f"{spec.params * digits * math.log2(10):.0f} ({digits})"
    if not isinstance(spec, Tied):
        return numbers
    return f"{numbers} + {spec.base.params * math.log2(2 * spec.params + 1):.0f}"


def rounded(theta_P: torch.Tensor, digits: int) -> torch.Tensor:
    """Return θ [P] with each number rounded to so many significant digits."""
    return torch.tensor([float(f"{x:.{digits - 1}e}") for x in theta_P.double().tolist()])


def fewest_digits(checkpoint: Checkpoint) -> int:
    """Return how many significant digits a number are enough for all of AdderBoard's 10,010 additions."""
    spec, theta_P = checkpoint.spec, checkpoint.theta_P
    return next(d for d in range(1, 10) if verify(spec, rounded(theta_P, d)).verified)


def origin(checkpoint: Checkpoint) -> str:
    """Return how a checkpoint was made, by its provenance."""
    provenance = checkpoint.provenance
    if "built_by_hand" in provenance:
        return "built by hand"
    if "folded_from" in provenance:
        return "54p, folded"
    if "stages" in provenance:
        return "from scratch, wide, then ramps, in one run"
    if "compressed_from" in provenance:
        return f"compress: {provenance['sets_tried']:,} sets, {provenance['seed_steps'] / 1e6:.1f} million steps"
    if "sets_tried" in provenance:
        return f"ties more, by worst margins: {provenance['sets_tried']} sets"
    if "moved_from" in provenance:
        return "rewritten with a constraint that a person saw"
    if "finished_from" in provenance:
        return f"from scratch, finished by {provenance['finished_by']}"
    return f"from scratch ({provenance['study']})"


if __name__ == "__main__":
    torch.set_num_threads(1)
    rows = []
    for path in folders():
        checkpoint = Checkpoint.load(path)
        verification = verify(checkpoint.spec, checkpoint.theta_P, extended=True)
        (path / "verification.json").write_text(json.dumps(verification.as_dict()) + "\n", encoding="utf-8")
        if verification.verified:
            rows.append((path.name, fewest_digits(checkpoint)))
        print(path.name, verification.correct, verification.margin, rows[-1], flush=True)
    pd.DataFrame(rows, columns=["certificate", "digits"]).to_csv(DIGITS, index=False, lineterminator="\n")
