"""Reading files that anyone may have written."""

from pathlib import Path


def read_limited(path: Path, most: int, what: str) -> bytes:
    """Return the content of a file of `most` bytes at most. what: kind of file that none is larger than.

    Raises ValueError, without the path, for what is larger and for what is no regular file: a pipe would be waited for.
    """
    if not path.is_file():
        raise ValueError("not a file" if path.exists() else "no such file")
    # Read with a limit, whatever its size was said to be: it may grow meanwhile.
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"larger than any {what} ({path.stat().st_size:,} bytes)")
    return data
