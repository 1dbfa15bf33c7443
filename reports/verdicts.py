"""The rule by which a cell of the constraint table speaks, and what the 57p paper says (published.csv).

Source of published.csv: "Training a Transformer for Perfect 10-Digit Addition", section 4.3, "Scale-Dependent
Constraints". Its text does not show which cells of a row are blank. Blanks were taken to be the first ones,
because frozen spiral and qk_dim=4 come in with 67p and tied fc2 with 57p (section 4.1). The row is "No FFN
bias", but its words are about the bias: where that is required, the constraint fails.
"""

import csv
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files

from search.stats.intervals import LEVEL, Interval

SECTION = "57p paper, section 4.3"
EXPECTED = 6
"""Seeds that the base's rate must promise before none of them with the constraint says anything."""
HALF = 0.5


class Answer(StrEnum):
    YES = "yes"
    NO = "no"
    OPEN = "open"


class Effect(StrEnum):
    COSTS = "costs"
    HELPS = "helps"
    OPEN = "open"


_INTERVAL = f"{100 * (1 - LEVEL):.0f} % interval"
RULE = {
    "trains": "yes: a seed that grokked with the constraint is verified. no: not seen to train, "
    f"none of n grokked, where the rate without it would have given {EXPECTED} or more. Else open",
    "ratio": "grok rate with the constraint over that without it, on the seeds that both arms had, with its "
    f"{_INTERVAL} (Nam and Blackwelder's score for paired shares, its tail summed exactly)",
    "cost": "costs: the interval is below 1. helps: it is above 1. Else open",
    "keeps half": f"yes: the interval is above {HALF}. no: it is below. Else open",
}


def trains(verified: int, grokked: int, n: int, rate_without: float) -> Answer:
    """Return if a constraint trains.

    verified, grokked: seeds with it, in any study. n: seeds of the arm that is compared. rate_without: its partner's.
    """
    if verified:
        return Answer.YES
    # Few seeds, or seeds of a scale that hardly groks, show nothing by failing.
    if not grokked and n * rate_without >= EXPECTED:
        return Answer.NO
    return Answer.OPEN


def cost(ratio: Interval | None) -> Effect:
    """Return what the interval of the ratio of grok rates says; None where nothing is paired."""
    low, high = ratio or (0.0, float("inf"))  # which decides nothing
    if high < 1:
        return Effect.COSTS
    return Effect.HELPS if low > 1 else Effect.OPEN


def keeps_half(ratio: Interval | None) -> Answer:
    """Return if at least half of the grok rate is kept."""
    low, high = ratio or (0.0, float("inf"))
    if low > HALF:
        return Answer.YES
    return Answer.NO if high < HALF else Answer.OPEN


@dataclass(frozen=True)
class Claim:
    """The words of a published cell, and the verdict that they amount to: works, fails, or none."""

    words: str = ""
    verdict: str = ""


@cache
def published() -> dict[tuple[str, str], Claim]:
    """Return the published cells by constraint and preset, in the paper's order."""
    with files("reports").joinpath("published.csv").open(encoding="utf-8") as file:
        return {(r["constraint"], r["scale"]): Claim(r["words"], r["verdict"]) for r in csv.DictReader(file)}


class Agreement(StrEnum):
    AGREES = "agrees"
    CONTRADICTS = "contradicts"
    OPEN = "open"


def agreement(ours: Answer, claim: Claim) -> Agreement | None:
    """Compare if a constraint trains with the published verdict; None where there is none."""
    if not claim.verdict:
        return None
    if ours == Answer.OPEN:
        return Agreement.OPEN
    works = ours == Answer.YES
    says_it_works = claim.verdict == "works"
    return Agreement.AGREES if works == says_it_works else Agreement.CONTRADICTS
