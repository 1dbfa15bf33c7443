"""What paper 1 says of each constraint at each scale. Data alone, to be set beside what is recorded here.

Source: "Training a Transformer for Perfect 10-Digit Addition" (the 57p paper), section 4.3,
"Scale-Dependent Constraints". Its text does not show which cells of a row are blank: blanks were taken to be
the first ones, because frozen spiral and qk_dim=4 come in with 67p and tied fc2 with 57p (section 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass

SECTION = "57p paper, section 4.3"


@dataclass(frozen=True)
class Claim:
    """The words of one cell, and the verdict on the constraint that they amount to."""

    words: str = ""
    verdict: str = ""
    """works, fails, or nothing where the paper claims nothing."""


NO_CLAIM = Claim()
NOT_TESTED = Claim("Not tested")
WORKS = Claim("Works", "works")
# The row is "No FFN bias", but these words are about the bias: where it is required, the constraint fails.
BIAS_REQUIRED = Claim("Required for convergence", "fails")
BIAS_UNNECESSARY = Claim("Unnecessary", "works")

SCALES = ("170p", "74p", "67p", "57p")

_ROWS = {
    "shared_norm": (Claim("Failed (61.5%)", "fails"), WORKS, WORKS, WORKS),
    "rank1_out": (Claim("Failed (0.08%)", "fails"), WORKS, WORKS, WORKS),
    "no_ffn_bias": (BIAS_REQUIRED, BIAS_UNNECESSARY, BIAS_UNNECESSARY, BIAS_UNNECESSARY),
    "tie_vo": (Claim("Destroys output (94% error)", "fails"), WORKS, WORKS, WORKS),
    "frozen_spiral": (NO_CLAIM, NO_CLAIM, Claim("Works (saves 4p)", "works"), WORKS),
    "qk_dim=4": (NO_CLAIM, NO_CLAIM, Claim("Works (saves 3p)", "works"), WORKS),
    "tie_fc2_head": (NO_CLAIM, NO_CLAIM, NOT_TESTED, Claim("Works (saves 10p)", "works")),
}
CLAIMS = {row: dict(zip(SCALES, cells, strict=True)) for row, cells in _ROWS.items()}
"""Constraint, as one writes it, and rung -> claim. In the paper's order."""


def claim(constraint: str, rung: str) -> Claim:
    """What the paper says of a constraint at a rung."""
    return CLAIMS.get(constraint, {}).get(rung, NO_CLAIM)
