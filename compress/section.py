"""The `compress` of a study file: constraints that the machine is to find for the θ that it starts from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, field_validator

from model.fields import did_you_mean
from model.structures import STRUCTURES
from search.study.space import LARGEST_SEED, Strict

KINDS = ("zero", "equal", "opposite", *STRUCTURES, "other")
"""One constraint more; structures that rows, columns and blocks may share; a tie loosened for another."""
SCOPES = {"tensor": "tensor", "values": "global"}
"""Reach of ties, as users name it -> as a descent does."""


def check_kinds(kinds: Sequence[str]) -> None:
    """Raise ValueError for an unknown kind of constraint, or one that is listed twice."""
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"unknown {kind!r:.80}; {did_you_mean(kind, KINDS)}")
    if len(set(kinds)) < len(kinds):
        raise ValueError("a kind is listed twice")


class Accept(Strict):
    """What a set must get right to be gone on from."""

    exact: float = Field(
        1.0,
        ge=0.5,
        le=1,
        description="of the selection problems, and of 54,400 others of our own",
    )
    proved: Literal["any", "here"] | None = Field(
        None,
        description="right on all 10^20 pairs too: on any machine, or here; sets go by their smallest margin",
    )

    def __str__(self) -> str:
        return f"exact {self.exact:g} and {f'proved {self.proved}' if self.proved else 'no proof'}"

    def takes_over(self, before: Accept) -> bool:
        """True if a set that was accepted before need not be judged again; by proofs sets are ranked otherwise."""
        return self.exact <= before.exact and self.proved == before.proved


class Compress(Strict):
    """Constraints found by the machine: rounds of sets of ties, trained from the θ of one that was kept."""

    proposals: int = Field(64, ge=1, le=4_096, description="sets of a round; unit: sets")
    beam: int = Field(8, ge=1, le=256, description="kept sets that a round goes on from; unit: sets")
    rounds: int = Field(40, ge=1, le=1_000, description="how many at most; unit: rounds")
    patience: int = Field(
        10,
        ge=1,
        le=1_000,
        description="rounds without a smaller set after which it ends; unit: rounds",
    )
    accept: Accept = Field(default=Accept())
    kinds: list[str] = Field(list(KINDS), min_length=1, description=f"of constraints: {', '.join(KINDS)}")
    reach: Literal["tensor", "values"] = Field(
        "tensor", description="tie numbers of one tensor only, or any two (values)"
    )
    proposer: Literal["saliency", "nsga2", "random"] = Field(
        "saliency",
        description="by predicted cost; the others are of the research notebook (lab/)",
    )
    seed: int = Field(0, ge=0, le=LARGEST_SEED, description="of the proposer's own generator")

    @property
    def scope(self) -> str:
        """Scope of ties as a descent has it: `tensor` or `global`."""
        return SCOPES[self.reach]

    @field_validator("kinds")
    @classmethod
    def _check_kinds(cls, value: list[str]) -> list[str]:
        check_kinds(value)
        return value


def section_of(study: Any) -> Compress:
    """Return the `compress` of a study that has one."""
    section: Compress = study.compress
    return section
