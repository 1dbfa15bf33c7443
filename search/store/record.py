"""A seed's record, as the ledger has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from trainer import Outcome

if TYPE_CHECKING:
    from trainer import Result

MEASURED = (
    "steps", "grok_step", "held", "hopeless_step", "screen", "best_step", "best_exact", "best_token",
)  # fmt: skip
"""Columns that say what training a seed came to."""


SeedKey = tuple[str, int, int]
"""A configuration's key, init_seed, data_seed."""


class SeedRecord(TypedDict):
    """One row of the table `ledger`: a seed of a configuration of a study, and what became of it."""

    study: str
    configuration: str
    init_seed: int
    data_seed: int
    confirmation: bool
    """True if it was trained to confirm what a search had chosen."""
    outcome: str
    """An Outcome; unless it is final, the seed is still to be trained."""
    reason: str | None
    """Reason why it was ended from outside."""
    steps: int
    grok_step: int | None
    held: bool | None
    """True if it was still right `recipe.hold` steps after it had grokked."""
    hopeless_step: int | None
    """Step at which the futility rule would end it, or did."""
    screen: str | None
    """Rung of the screen that would end it, or did."""
    best_step: int | None
    best_exact: float | None
    best_token: float | None
    seed_steps_per_s: float | None
    """Speed of its bank, of all slots together."""
    core_s: float | None
    """Its share of its bank's time, times cores; None unless the C++ engine trained it."""
    environment: NotRequired[dict[str, Any] | None]
    """Code, versions and hardware that trained it; read only when asked for."""
    owner: str | None
    lease_until: float | None
    """End of its owner's lease in seconds since 1970, by the database's clock."""
    verify_calls: int
    verified: int | None
    """Right answers of AdderBoard's 10,010 at the last call."""
    proof: dict[str, Any] | None
    """The verdict of `prove` on all pairs, if it was asked (model/verdict.py)."""


@dataclass(frozen=True)
class TrainedBy:
    """The bank that trained seeds: its speed, of all slots together, and its code, versions and hardware."""

    seed_steps_per_s: float
    environment: Mapping[str, Any]

    def columns(self, result: Result) -> dict[str, Any]:
        """Return the ledger's columns of what became of a seed."""
        rate, environment = self.seed_steps_per_s, self.environment
        threads = environment.get("threads", 1) if environment.get("engine") == "native" else None
        return {
            **{name: getattr(result, name) for name in MEASURED},
            "outcome": result.outcome.value,
            # None unless the C++ engine trained it
            "core_s": result.steps / rate * threads if rate and threads else None,
            "seed_steps_per_s": rate,
            "environment": dict(environment),
        }


def is_final(row: Mapping[str, Any]) -> bool:
    """True if a row needs no more training. Censored seeds go on when the study does."""
    return row["outcome"] not in (Outcome.QUEUED, Outcome.RUNNING, Outcome.CENSORED)
