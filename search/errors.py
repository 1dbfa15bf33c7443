"""What a user can get wrong, and what can fail: one clear line each, never a traceback."""

from __future__ import annotations


class UserError(Exception):
    """Wrong use: a misspelt key, a missing file, an impossible request. Exit code 2."""

    code = 2


class Failure(Exception):
    """Something outside failed: a locked database, a server that is away. Exit code 1."""

    code = 1
