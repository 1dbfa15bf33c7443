"""Code that a spec names, such as a user's file: it is run, so a text that this user has not let run is refused.

What a user lets run trainer/files/trusted.py remembers.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

LARGEST_CODE = 1 << 18
"""Bytes of a file: it is kept with every record."""
NAMED: set[str] = set()
"""Digests of the texts that somebody has named in this process."""
LETS_RUN: list[Callable[[str], bool]] = [NAMED.__contains__]
"""Say of a text's digest whether this user lets it run; trainer/files/trusted.py adds one that remembers."""


class Untrusted(ValueError):
    """A text that would be run, and that nobody here has let run."""


def digest_of(text: str) -> str:
    """Return a text's SHA-256."""
    return sha256(text.encode()).hexdigest()


def is_file(where: str) -> bool:
    """True if a name of code, FILE.py:NAME or package.module:NAME, is that of a file."""
    return where.partition(":")[0].endswith(".py")


def may_run(digest: str) -> bool:
    """True if this user lets a text with this digest run."""
    return any(lets(digest) for lets in LETS_RUN)


def let_run(text: str) -> None:
    """Let a text run in this process, whose caller has named it."""
    NAMED.add(digest_of(text))
