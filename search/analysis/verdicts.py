"""Verdicts on constraints: the rule by which records give one, and what the 57p paper says (published.csv).

Source of published.csv: "Training a Transformer for Perfect 10-Digit Addition", section 4.3, "Scale-Dependent
Constraints". Its text does not show which cells of a row are blank. Blanks were taken to be the first ones,
because frozen spiral and qk_dim=4 come in with 67p and tied fc2 with 57p (section 4.1). The row is "No FFN
bias", but its words are about the bias: where that is required, the constraint fails.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files

from search.stats.counting import GrokRate
from search.stats.intervals import LEVEL, Paired

SECTION = "57p paper, section 4.3"
POWER = 0.8


class Verdict(StrEnum):
    HELPS = "helps"
    WORKS = "works"
    FAILS = "fails"
    CANNOT_TELL = "cannot tell"
    NOT_TESTED = "not tested"


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
    """Return the verdict by RULE. paired: the seeds that both arms had, the first arm with the constraint."""
    if not with_it.n:
        return Verdict.NOT_TESTED
    if paired is None or not paired.n:
        return Verdict.CANNOT_TELL
    if paired.p < LEVEL:
        return Verdict.HELPS if paired.difference > 0 else Verdict.FAILS
    some = paired.both + paired.first
    return Verdict.WORKS if some and paired.power >= POWER else Verdict.CANNOT_TELL


@dataclass(frozen=True)
class Claim:
    """The words of a published cell, and the verdict that they amount to: works, fails, or none."""

    words: str = ""
    verdict: str = ""


@cache
def published() -> dict[tuple[str, str], Claim]:
    """Return the published cells by constraint and preset, in the paper's order."""
    with files("search.analysis").joinpath("published.csv").open(encoding="utf-8") as file:
        return {(r["constraint"], r["scale"]): Claim(r["words"], r["verdict"]) for r in csv.DictReader(file)}


class Agreement(StrEnum):
    AGREES = "agrees"
    CONTRADICTS = "contradicts"
    OPEN = "open"
    NO_CLAIM = "no claim"


def agreement(ours: Verdict, claim: Claim) -> Agreement:
    """Compare our verdict with the published one; what helps works."""
    if not claim.verdict:
        return Agreement.NO_CLAIM
    if ours in (Verdict.CANNOT_TELL, Verdict.NOT_TESTED):
        return Agreement.OPEN
    same = (ours == Verdict.FAILS) == (claim.verdict == "fails")
    return Agreement.AGREES if same else Agreement.CONTRADICTS
