"""Verdicts on all pairs of numbers, as they are kept: in a checkpoint's folder, or in a ledger. Anyone may have
written one. What decides them is a plug-in (adders/proof).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.files import read_limited
from model.spec import known_spec

if TYPE_CHECKING:
    from torch import Tensor

    from model.spec import Spec

VERDICT_FILE = "proof.json"
"""In a checkpoint's folder: the verdict, without the rows."""
PROVED, COUNTEREXAMPLE, UNDECIDED = "PROVED", "COUNTEREXAMPLE", "UNDECIDED"
COLUMNS = 10
LARGEST_FILE, LARGEST, MOST_WRONG = 1 << 18, 1e300, 100
"""Of a verdict: bytes of its file, its numbers, the wrong pairs that it names."""
Fits = Callable[[Any], bool]
LEVELS = ("any", "here")


def is_right(verdict: object) -> bool | None:
    """Return what a recorded verdict (plain values) says of all pairs; None where it decides nothing."""
    word = verdict.get("verdict") if isinstance(verdict, Mapping) else None
    return {PROVED: True, COUNTEREXAMPLE: False}.get(str(word))


def read_verdict(values: object) -> dict[str, Any] | None:
    """Return a verdict of which anyone may have written the values; None unless each is of its type and size.

    What else they have is left out. A verdict that decides has what it is quoted with: a margin, a wrong pair.
    """
    if not isinstance(values, Mapping):
        return None
    typed = {name: _finite(values.get(name)) for name in VALUES}
    more = {name: values[name] for name in MORE if name in values}
    fit = all(fits(typed[name]) for name, fits in VALUES.items()) and all(MORE[name](v) for name, v in more.items())
    spec = known_spec(typed["spec"]) if fit else None
    if spec is None:
        return None
    word = more.get("claimed", typed["verdict"])
    if (word == PROVED and typed["margin"] is None) or (word == COUNTEREXAMPLE and not typed["wrong"]):
        return None
    wrong = [{name: pair[name] for name in ("a", "b", "answer")} for pair in typed["wrong"]]
    return typed | {"pair": list(typed["pair"]), "wrong": wrong, "spec": spec.as_dict()} | more


def read_values(path: Path) -> object:
    """Return the plain values of a small regular file; None of anything else."""
    try:
        return json.loads(read_limited(path, LARGEST_FILE, "verdict"))
    except (OSError, ValueError, RecursionError):
        return None


def digest(theta_P: Tensor) -> str:
    return hashlib.sha256(theta_P.numpy().tobytes()).hexdigest()


def write_verdict(folder: Path, spec: Spec, theta_P: Tensor, values: dict[str, Any]) -> dict[str, Any]:
    """Keep a verdict beside the checkpoint in a folder, unless it decides nothing and one there does. Return which."""
    earlier = claim_beside(folder, spec, theta_P)
    if earlier and is_right(values) is None and is_right(earlier) is not None:
        return earlier
    text = json.dumps(values | {"spec": spec.as_dict()})  # records of before lack it
    (folder / VERDICT_FILE).write_text(f"{text}\n", encoding="utf-8")
    return values


def claim_beside(folder: Path, spec: Spec, theta_P: Tensor) -> dict[str, Any] | None:
    """Return what the file in a checkpoint's folder says of all pairs; None where it says nothing of this spec and θ.

    Anyone may have written it: it is read as far as a verdict goes, and it is a claim (search/store/verdicts.py).
    """
    claim = read_verdict(read_values(folder / VERDICT_FILE))
    return claim if claim and is_about(claim, spec, theta_P) else None


def is_about(verdict: Mapping[str, Any], spec: Spec, theta_P: Tensor) -> bool:
    """True if a verdict is on all pairs, of this spec and θ."""
    return (verdict["spec"], verdict["theta_sha256"], verdict["digits"]) == (
        spec.as_dict(),
        digest(theta_P),
        COLUMNS,
    )


def _finite(value: Any) -> Any:
    """Return a value, but None for a number that is none."""
    return None if isinstance(value, float) and not isfinite(value) else value


def _number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= LARGEST


def _count(most: int) -> Fits:
    return lambda value: type(value) is int and 0 <= value <= most


def _maybe(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def _pair(value: Any) -> bool:
    return type(value) in (list, tuple) and len(value) == 2 and all(map(_count(10**COLUMNS - 1), value))


def _digest(value: Any) -> bool:
    return type(value) is str and re.fullmatch("[0-9a-f]{64}", value) is not None


def _wrong(value: Any) -> bool:
    is_short = type(value) is list and len(value) <= MOST_WRONG
    return is_short and all(
        isinstance(w, Mapping) and _pair([w.get("a"), w.get("b")]) and _count(10**20)(w.get("answer")) for w in value
    )


VALUES: dict[str, Fits] = {
    "verdict": lambda value: value in (PROVED, COUNTEREXAMPLE, UNDECIDED),
    "level": lambda value: value in LEVELS,
    "digits": _count(COLUMNS),
    "margin": _maybe(_number),
    "pair": _pair,
    "digit": _count(COLUMNS + 1),
    "wrong": _wrong,
    "room": _maybe(_number),
    "cases": _count(10**12),
    "boxes": _count(10**12),
    "seconds": lambda value: _number(value) and value >= 0,
    "params": _count(10**9),
    "theta_sha256": _digest,
    "spec": lambda value: isinstance(value, Mapping),
}
"""What a verdict on disk or in a ledger says, and if a value can be that."""
MORE: dict[str, Fits] = {
    "seal": _digest,
    "claimed": lambda value: value in (PROVED, COUNTEREXAMPLE),
}
"""What it may say beside that (search/store/verdicts.py)."""
