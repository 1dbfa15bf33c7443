"""Errors of users and failures outside: one clear line each, never a traceback."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, unquote

LONGEST_LINE = 1_000
"""Unit: characters."""


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
    """Return a text from elsewhere as one line that is not a page long.

    >>> printable("a\\nb")
    'a\\\\nb'
    """
    shown = (char if char.isprintable() else repr(char)[1:-1] for char in shortened(line))
    return "".join(shown)


def shortened(text: str) -> str:
    """Leave out the middle of a text longer than LONGEST_LINE. It begins with its place and ends with the remedy."""
    if len(text) <= LONGEST_LINE:
        return text
    half = LONGEST_LINE // 2
    return f"{text[:half]} ... {text[-half:]}"


SQLALCHEMY = re.compile(r"(?:\(raised as .*?\) )?\(\w+\.\w*Error\) (.*?) (\[SQL: |\(Background on this error).*")
"""SQLAlchemy's words around a database's own, in errors that MLflow passes on."""


def one_line(error: Exception) -> str:
    """Return another program's error in one line without secrets; its kind if it has no text."""
    text = " ".join(str(getattr(error, "orig", None) or error).split())
    text = SQLALCHEMY.sub(r"\1", text)
    return shortened(masked(text)) or type(error).__name__


MASK = "***"
ADDRESS = re.compile(r"(MLFLOW_\w+_URI|ADDER_SEARCH_DATABASE|\w+_PROXY)", re.IGNORECASE)
SECRET = re.compile(r"(?!.*_(PATH|FILE)$).*(PASSWORD|PASSPHRASE|SECRET|TOKEN|ACCESS_KEY|API_KEY|CONNECTION_STRING).*")
"""Names of environment variables that are an address, or a secret."""
SHORTEST = 6
"""Least characters of a secret that is hidden by itself: a shorter one may be a part of other words."""


def masked(text: str) -> str:
    """Return a text without the secrets of the environment, and without those of the addresses in it.

    Every address, every error and all output of other programs is printed by way of this.
    """
    for name, value in os.environ.items():
        if SECRET.fullmatch(name) and len(value) >= SHORTEST:
            text = text.replace(value, MASK)
        elif ADDRESS.fullmatch(name) and value:
            text = text.replace(value, bare(value))
            for part in _secret_parts(value):
                if len(part) >= SHORTEST:
                    text = text.replace(part, MASK)

    # Addresses that the environment does not have: of a user's file, or of another program's error.
    return re.sub(r"\S+", lambda word: bare(word[0]), text)


def bare(address: str) -> str:
    """Hide the parts of an address that may be secret.

    All before the last @ goes where there is a scheme, or a colon (me:pw@host). Without a scheme only ?name=value
    and &name=value are hidden, so that a plain word stays as it is. Of databricks://PROFILE, and where ? or # stand
    before the @ (a password may have them), only the scheme is shown.

    >>> bare("http://me:pw@host/x?key=1")
    'http://host/x?***'
    """
    scheme, mark, rest = address.partition("://")
    whole = rest if mark else address
    who, at_sign, where = whole.rpartition("@")
    if not at_sign or not (mark or ":" in who):  # an @ in a plain word is none of an address
        who, where = "", whole

    is_profile = mark and scheme.endswith(("databricks", "databricks-uc"))
    if is_profile or not set("?#").isdisjoint(who):
        where = MASK

    hidden = r"(?<=[?#]).+" if mark else r"(?<=[?&#])[^?&#=]*=.+"
    shown = re.sub(hidden, MASK, where)
    return f"{scheme}://{shown}" if mark else shown


def _secret_parts(address: str) -> set[str]:
    """Return each secret part of an address by itself: another program may take the address apart."""
    scheme, mark, rest = address.partition("://")
    who, _, where = (rest if mark else address).rpartition("@")
    values = (part.rpartition("=")[2] for part in re.split(r"[?&#;]", where)[1:])
    parts = {who if scheme.startswith("http") else "", who.partition(":")[2], *values}
    return parts | {quote(part) for part in parts} | {unquote(part) for part in parts}


@contextmanager
def reraise_as(
    where: object = "",
    of: type[Exception] | tuple[type[Exception], ...] = ValueError,
    kind: type[UserError] | type[Failure] = UserError,
) -> Iterator[None]:
    """Re-raise errors of a block as a UserError, or another `kind`, that begins with its place.

    >>> with reraise_as("seeds"):
    ...     int("x")
    Traceback (most recent call last):
    search.errors.UserError: seeds: invalid literal for int() with base 10: 'x'
    """
    try:
        yield
    except of as error:
        raise kind(f"{where}: {error}" if where else str(error)) from None
