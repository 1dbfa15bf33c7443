"""What a user can get wrong, and what can fail: one clear line each, never a traceback."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_LINE = 1_000  # characters


class UserError(Exception):
    """Wrong use: a misspelt key, a missing file, an impossible request. Exit code 2."""

    code = 2


class NotFound(UserError):
    """Something that was named is not there."""


class AlreadyExists(UserError):
    """Something is there already, or belongs to another driver."""


class Failure(Exception):
    """Something outside failed: a locked database, a server that is away. Exit code 1."""

    code = 1


def printable(line: str) -> str:
    """One line whatever a text from elsewhere holds, and not a page long."""
    plain = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line[:LONGEST_LINE])
    return plain if len(line) <= LONGEST_LINE else plain + " ..."


def masked(text: str) -> str:
    """A text without the passwords and tokens of the addresses in it: before an @, and behind ?, & and #."""
    return re.sub(r"\S+", lambda word: _masked(word[0]), text)


def _masked(word: str) -> str:
    start, end = word.find("//") + 2, word.rfind("@") + 1
    bare = word[:start] + word[end:] if 2 <= start < end else word
    return re.sub(r"([?&#][^?&#=]*=)[^?&#]+", r"\1***", bare)


def has_secret(uri: str) -> bool:
    """Whether a store's address has a password or token in it: before an @, or behind ? or #."""
    scheme, _, rest = uri.partition("://")
    who, at_sign, _ = rest.rpartition("@")
    has_user = bool(at_sign) and (":" in who or scheme.startswith("http"))
    return has_user or not set("?#").isdisjoint(uri)


@contextmanager
def reraise_as(
    where: object = "",
    of: type[Exception] | tuple[type[Exception], ...] = ValueError,
    kind: type[UserError] | type[Failure] = UserError,
) -> Iterator[None]:
    """What a block refuses is the user's to hear: a UserError, or a Failure, that says where first."""
    try:
        yield
    except of as error:
        raise kind(f"{where}: {error}" if where else str(error)) from None
