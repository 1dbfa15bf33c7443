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

from model.files import VERDICT_FILE as VERDICT_FILE
from model.files import read_limited
from model.spec import known_spec

if TYPE_CHECKING:
    from torch import Tensor

    from model.spec import Spec

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
    """Return a verdict from values that anyone may have written; None unless each is of its type and size.

    Other values are left out. A verdict that decides has what it is quoted with: a margin, or a wrong pair.
    """
    if not isinstance(values, Mapping):
        return None
    # Only known names are taken over: anything else that a stranger wrote goes no further.
    typed = {name: _finite(values.get(name)) for name in VALUES}
    more = {name: values[name] for name in MORE if name in values}
    is_fit = all(fits(typed[name]) for name, fits in VALUES.items())
    is_fit = is_fit and all(MORE[name](value) for name, value in more.items())
    spec = known_spec(typed["spec"]) if is_fit else None
    if spec is None:
        return None

    # Without what it is quoted with a verdict would be an empty word, and its readers would fail.
    word = more.get("claimed", typed["verdict"])
    lacks_margin = word == PROVED and typed["margin"] is None
    lacks_pair = word == COUNTEREXAMPLE and not typed["wrong"]
    if lacks_margin or lacks_pair:
        return None
    wrong = [{name: pair[name] for name in ("a", "b", "answer")} for pair in typed["wrong"]]
    plain = {"pair": list(typed["pair"]), "wrong": wrong, "spec": spec.as_dict()}
    return typed | plain | more


def read_values(path: Path) -> object:
    """Return the plain values of a small regular file; None of anything else."""
    # A verdict that cannot be read is none: nothing of a checkpoint hangs on it.
    try:
        return json.loads(read_limited(path, LARGEST_FILE, "verdict"))
    except (OSError, ValueError, RecursionError):
        return None


def digest(theta_P: Tensor) -> str:
    """Return the SHA-256 of a θ's bytes, in hexadecimal."""
    return hashlib.sha256(theta_P.numpy().tobytes()).hexdigest()


def write_verdict(
    folder: Path, spec: Spec, theta_P: Tensor, values: dict[str, Any], is_new: bool = True
) -> dict[str, Any]:
    """Keep a verdict beside the checkpoint in a folder, and return it. Raises ValueError as `refuse_proof` does.

    If it decides nothing, and the verdict that is there does, keep and return that one, unless that is of an earlier
    program. is_new: False for a verdict of a ledger, which may be the one of an earlier program.
    """
    refuse_proof(folder)
    earlier = claim_beside(folder, spec, theta_P)
    if earlier and is_right(values) is None and is_right(earlier) is not None:
        is_of_another = earlier.get("program_sha256") != values.get("program_sha256")
        if not (is_new and is_of_another):
            return earlier
    text = json.dumps(values | {"spec": spec.as_dict()})  # older records lack it
    (folder / VERDICT_FILE).write_text(f"{text}\n", encoding="utf-8")
    return values


def refuse_proof(folder: Path) -> None:
    """Raise ValueError where a verdict in a folder would take the place of a proof, which `prove -o` has written."""
    path = folder / VERDICT_FILE
    values = read_values(path)
    if isinstance(values, Mapping) and "claim" in values:
        raise ValueError(f"{path}: is a proof, which a verdict would overwrite; move it elsewhere")


def claim_beside(folder: Path, spec: Spec, theta_P: Tensor) -> dict[str, Any] | None:
    """Return what the file in a checkpoint's folder says of all pairs; None where it says nothing of this spec and θ.

    Anyone may have written it: it is read as far as a verdict goes, and it is a claim (search/store/verdicts.py).
    """
    claim = read_verdict(read_values(folder / VERDICT_FILE))
    return claim if claim and is_about(claim, spec, theta_P) else None


def is_about(verdict: Mapping[str, Any], spec: Spec, theta_P: Tensor) -> bool:
    """True if a verdict is on all pairs, of this spec and θ."""
    # The spec too: other constants in checkpoint.json are another function of the same θ.
    said = (verdict["spec"], verdict["theta_sha256"], verdict["digits"])
    return said == (spec.as_dict(), digest(theta_P), COLUMNS)


def _finite(value: Any) -> Any:
    """Return the value, with None in place of NaN and infinities."""
    return None if isinstance(value, float) and not isfinite(value) else value


def _number(value: Any) -> bool:
    """True for a number of a size that is allowed."""
    # `type`, since for isinstance true and false are numbers
    return type(value) in (int, float) and abs(value) <= LARGEST


def _count(most: int) -> Fits:
    """Return a check for whole numbers from 0 to `most`."""
    return lambda value: type(value) is int and 0 <= value <= most


def _maybe(fits: Fits) -> Fits:
    """Return a check that accepts None beside what `fits` accepts."""
    return lambda value: value is None or fits(value)


def _pair(value: Any) -> bool:
    """True for two numbers of ten digits at most."""
    is_two = type(value) in (list, tuple) and len(value) == 2
    return is_two and all(map(_count(10**COLUMNS - 1), value))


def _digest(value: Any) -> bool:
    """True for a SHA-256 in hexadecimal."""
    return type(value) is str and re.fullmatch("[0-9a-f]{64}", value) is not None


def _wrong(value: Any) -> bool:
    """True for a short list of pairs with their wrong answers."""
    if type(value) is not list or len(value) > MOST_WRONG:
        return False
    for pair in value:
        if not isinstance(pair, Mapping) or not _pair([pair.get("a"), pair.get("b")]):
            return False
        if not _count(10**20)(pair.get("answer")):
            return False
    return True


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
"""Values of a verdict on disk or in a ledger, each with the check that it must pass."""
MORE: dict[str, Fits] = {
    "seal": _digest,
    "program_sha256": _digest,
    "claimed": lambda value: value in (PROVED, COUNTEREXAMPLE),
}
"""Values that it may have besides (search/store/verdicts.py)."""
