"""Writing what a user asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from search.errors import UserError


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Whatever keeps a block from writing there is a UserError that names the place."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{target}: cannot write there ({error.strerror})") from None


def write_file(target: Path, write: Callable[[Path], object], flag: str = "-o") -> None:
    """Have a file written whole or not at all. `flag`: the option that named it, for the error's advice."""
    refuse_folder(target, flag)
    fresh = target.with_name(target.name + ".new")
    with writing(target):
        write(fresh)
        fresh.replace(target)


def write_text(target: Path, text: str, flag: str = "-o") -> None:
    write_file(target, lambda path: path.write_text(text, encoding="utf-8"), flag)


def refuse_folder(target: Path, flag: str = "-o") -> None:
    if target.is_dir():
        raise UserError(f"{target}: is a folder; give the file's name with {flag}")
