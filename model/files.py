"""Reading files that anyone may have written; names of a checkpoint's files."""

from pathlib import Path

JSON_FILE, THETA_FILE, VERDICT_FILE = "checkpoint.json", "theta.safetensors", "proof.json"
"""Files of a checkpoint's folder; the last is a verdict on all pairs, where there is one."""
FOLDER_FILES = {JSON_FILE, THETA_FILE, VERDICT_FILE}


def is_of_checkpoint(path: Path) -> bool:
    """True for a place in a checkpoint's folder that one of its files has, or would have."""
    return path.name in FOLDER_FILES and (path.parent / JSON_FILE).exists()


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
