"""Reading files that anyone may have written."""

from pathlib import Path


def read_limited(path: Path, most: int, what: str) -> bytes:
    """Return the content of a file of at most `most` bytes.

    what: the kind of file, for the message. Raises ValueError, without the path, for a larger file and for anything but
    a regular file: a pipe would be waited for.
    """
    if not path.is_file():
        raise ValueError("not a file" if path.exists() else "no such file")
    # Read with a limit, whatever its size was said to be: it may grow meanwhile.
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"larger than any {what} ({path.stat().st_size:,} bytes)")
    return data
