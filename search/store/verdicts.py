"""Verdicts on all pairs of numbers: one that this user has decided has the user's seal, any other is a claim."""

from __future__ import annotations

import hmac
import json
import os
import secrets
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.verdict import UNDECIDED, claim_beside, is_about, is_right, read_verdict
from search.plugins import provers

if TYPE_CHECKING:
    from torch import Tensor

    from model import Spec

Verdict = dict[str, Any]
KEY = "verdicts.key"
"""Name of the file in the user's cache with the key of seals: without it every verdict is a claim."""
KEY_BYTES = 32
SETTLED_S, SOON_S = 60.0, 4.0
"""Seconds to decide a claim, which else stays one; seconds to decide a net that no verdict is about."""


def sealed(verdict: Verdict, *of: object) -> Verdict:
    """Return a verdict that was decided here, with the user's seal.

    of: names of its place, study and seed in a ledger, so that a copy elsewhere is a claim.
    """
    key = _key(is_made=True)
    return verdict | ({"seal": _seal(key, verdict, of)} if key else {})


def own(values: object, *of: object) -> Verdict | None:
    """Return a stored verdict without its seal: as a claim, unless this user has decided it for that place.

    A claim is undecided, and has its word under `claimed`.
    """
    if (verdict := read_verdict(values)) is None:
        return None

    seal = verdict.pop("seal", "")
    key = _key(is_made=False)
    is_own = key is not None and hmac.compare_digest(_seal(key, verdict, of), seal)
    if is_own or is_right(verdict) is None:
        return verdict
    return verdict | {"verdict": UNDECIDED, "claimed": verdict["verdict"]}


def beside(folder: Path, spec: Spec, theta_P: Tensor) -> Verdict | None:
    """Return the verdict in a checkpoint's folder, or the claim; None where there is none on this spec and θ."""
    return own(claim_beside(folder, spec, theta_P))


def settle(claim: Verdict | None, spec: Spec, theta_P: Tensor) -> Verdict | None:
    """Return a verdict that was decided here: the given one, or one that is decided now.

    A claim that SETTLED_S seconds do not decide stays one. None of a family that no prover knows.
    """
    if claim and not is_about(claim, spec, theta_P):
        claim = None
    if claim and "claimed" not in claim:
        return claim

    limit_s = SETTLED_S if claim else SOON_S
    decided = (decide(spec, theta_P, limit_s) for decide in provers())
    verdict = next((each for each in decided if each is not None), None)
    return claim if claim and is_right(verdict) is None else verdict


def _seal(key: bytes, verdict: Verdict, of: tuple[object, ...]) -> str:
    """Return the seal of a verdict, as it will be read again, in its place."""
    values = read_verdict(verdict) or {}
    values.pop("seal", None)
    message = json.dumps([of, values], sort_keys=True)
    return hmac.new(key, message.encode(), "sha256").hexdigest()


def _key(is_made: bool) -> bytes | None:
    """Return the user's key; None where there is none, or where others could have made it."""
    from trainer.files.installed import cache_folder

    try:
        return _read_key(cache_folder() / KEY, is_made)
    except (ValueError, OSError):
        return None


@cache
def _read_key(path: Path, is_made: bool) -> bytes:
    if is_made and not path.exists():
        draft = path.with_name(f"{KEY}.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # nobody else may read it, ever
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        with suppress(FileExistsError):  # of another process
            os.link(draft, path)
        draft.unlink()

    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise ValueError(f"{path}: is no key")
    return key
