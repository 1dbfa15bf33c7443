"""Verdicts on constraints: what paper 1 says of each at each scale, and by which rule we say it of records.

Source: "Training a Transformer for Perfect 10-Digit Addition" (the 57p paper), section 4.3,
"Scale-Dependent Constraints". Its text does not show which cells of a row are blank: blanks were taken to be
the first ones, because frozen spiral and qk_dim=4 come in with 67p and tied fc2 with 57p (section 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from search.stats.counting import GrokRate
from search.stats.intervals import LEVEL, Paired

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


# What is recorded here


class Verdict(StrEnum):
    HELPS = "helps"
    WORKS = "works"
    FAILS = "fails"
    CANNOT_TELL = "cannot tell"
    NOT_TESTED = "not tested"


POWER = 0.8
_TEST = f"McNemar's exact test on the seeds that both arms had ({100 * LEVEL:.0f} %)"
RULE = {
    Verdict.HELPS: f"more of the same seeds grok with it than without it, by {_TEST}",
    Verdict.WORKS: "some grok with it, not fewer by that test, and had it been fatal the test would have "
    f"said so in {100 * POWER:.0f} % of such comparisons or more (its power, from the rate without it)",
    Verdict.FAILS: "fewer grok with it, by that test",
    Verdict.CANNOT_TELL: "seeds were counted with it, and none of the above holds: too few seeds, or too few "
    "that grok without it, or none that both arms had",
    Verdict.NOT_TESTED: "no seed was counted with it",
}


def verdict(with_it: GrokRate, paired: Paired | None) -> Verdict:
    """The rule, as RULE says it. paired: the seeds that both arms had, `one` with the constraint."""
    if not with_it.n:
        return Verdict.NOT_TESTED
    if paired is None or not paired.n:
        return Verdict.CANNOT_TELL
    if paired.p < LEVEL:
        return Verdict.HELPS if paired.difference > 0 else Verdict.FAILS
    some = paired.both + paired.first
    return Verdict.WORKS if some and paired.power >= POWER else Verdict.CANNOT_TELL


class Agreement(StrEnum):
    AGREES = "agrees"
    CONTRADICTS = "contradicts"
    OPEN = "open"
    NO_CLAIM = "no claim"


def agreement(ours: Verdict, published: Claim) -> Agreement:
    """Our verdict against the published one; what helps works."""
    if not published.verdict:
        return Agreement.NO_CLAIM
    if ours in (Verdict.CANNOT_TELL, Verdict.NOT_TESTED):
        return Agreement.OPEN
    same = (ours == Verdict.FAILS) == (published.verdict == "fails")
    return Agreement.AGREES if same else Agreement.CONTRADICTS
