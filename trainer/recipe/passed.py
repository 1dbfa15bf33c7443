"""What a seed's stages came to, as its record says it. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple


class Passed(NamedTuple):
    """One stage of one seed."""

    stage: str
    tries: int
    """Trainings."""
    grokked: int
    """Those of them that grokked."""
    steps: int
    """Seed-steps of all of them."""


def told(stages: Iterable[Passed]) -> str:
    """Return the text that a seed's record has of its stages."""
    return json.dumps([list(stage) for stage in stages])


def passed(text: str | None) -> list[Passed]:
    """Return the stages of a seed's record, in order. Raises ValueError for another text.

    >>> passed('[["wide", 1, 1, 60000], ["two units", 3, 0, 72000]]')[-1].grokked
    0
    """
    # A record may be a stranger's, in a table that was passed on.
    try:
        rows = json.loads(text or "[]")
        return [Passed(str(stage), *map(int, numbers)) for stage, *numbers in rows]
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise ValueError(f"no stages of a seed: {text!r:.80}") from None
