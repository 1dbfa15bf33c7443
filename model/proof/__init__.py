"""Proofs that a net adds all 10^20 pairs right, float32's rounding included. docs/proof.md says how.

`check.py` checks a proof alone: it imports nothing of this package, and nothing here imports it.
"""

from __future__ import annotations

from collections.abc import Mapping

VERDICT_FILE = "proof.json"
"""In a checkpoint's folder: the verdict, without the rows."""
PROVED, COUNTEREXAMPLE, UNDECIDED = "PROVED", "COUNTEREXAMPLE", "UNDECIDED"


def is_right(verdict: object) -> bool | None:
    """Return what a recorded verdict (plain values) says of all pairs; None where it decides nothing."""
    word = verdict.get("verdict") if isinstance(verdict, Mapping) else None
    return {PROVED: True, COUNTEREXAMPLE: False}.get(str(word))
