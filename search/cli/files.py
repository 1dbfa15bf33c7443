"""Writing what a user asked for."""

from __future__ import annotations

from pathlib import Path

from search.errors import UserError


def write_text(target: Path, text: str, flag: str) -> None:
    """Write a file whole or not at all. `flag`: the option that named it, for the error's advice."""
    if target.is_dir():
        raise UserError(f"{target}: is a folder; give the file's name with {flag}")
    fresh = target.with_name(target.name + ".new")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(target)
    except OSError as error:
        raise UserError(f"{target}: cannot write there ({error.strerror})") from None
