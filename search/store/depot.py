"""Depots: a driver and its workers pass files through a folder that all see, or through an object store.

With a store each machine has a folder of its own, and an object's name is a file's path below it. A file is
written there (trainer/files/durable.py), then put into the store; it is fetched from the store before it is
read. A store shows an object whole or not at all but cannot rename: a folder is there once the list of its
files is, which is written last. In a shared folder there is nothing to do.
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlparse

from search.errors import Failure, UserError, masked, one_line
from search.store.retry import retry
from trainer.files import durable

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

VARIABLE = "ADDER_SEARCH_DEPOT"
PATIENCE_S, RETRY_S = 600.0, 2.0
"""Seconds that a store that is away is waited for, and between two attempts."""
SECRET = re.compile(r"(key|secret|token|password|sas)[^=&]*=", re.IGNORECASE)
LIST = ".list"
"""Suffix of the name of a folder's list."""

R = TypeVar("R")


class Shared:
    """A folder that driver and workers see: what is written is there."""

    retains_results = False
    """True if a file is here as it was left last, though its writer has died since."""
    poll_interval_s = 0.1

    def put(self, path: Path, patient: bool = True) -> None:
        """Leave a file for the others."""

    def get(self, path: Path, patient: bool = True) -> bool:
        """Fetch a file as it was left last. True if there is one."""
        return path.exists()

    def put_folder(self, folder: Path) -> None:
        """Leave a folder and what is in it, whole or not at all."""

    def get_folder(self, folder: Path) -> bool:
        """Fetch a folder, unless it is here. True if there is one."""
        return folder.exists()

    def has_folder(self, folder: Path) -> bool:
        """True if a folder was left."""
        return folder.exists()

    def remove(self, path: Path) -> None:
        """Delete a file, or a folder with all below it, from the store. The files of this machine stay."""

    def check(self) -> None:
        """Raise Failure where nothing can be left."""


class Depot(Shared):
    """Objects below a URI of any kind that pyarrow or fsspec knows: s3, gs, abfs, file.

    root: this machine's folder. Passwords are not in the URI: each machine has its own, as its kind of store
    wants them. A call waits for a store that is away, unless it is not `patient`, and then raises Failure. Raises
    UserError for a URI that names no store, or has a password in it.
    """

    retains_results, poll_interval_s = True, 1.0

    def __init__(self, root: Path, uri: str):
        self.root, self.uri = root, uri
        self.store, self.prefix = _open(uri)

    def put(self, path: Path, patient: bool = True) -> None:
        data = path.read_bytes()
        self._retry(lambda: self._write(self._name(path), data), patient)

    def get(self, path: Path, patient: bool = True) -> bool:
        data = self._retry(lambda: self._read(self._name(path)), patient)
        if data is not None:
            durable.make_folder(path.parent)
            durable.write(path, data)
        return data is not None

    def put_folder(self, folder: Path) -> None:
        """Leave a folder under a name of its own: of two that leave the same at once, one is there, whole."""
        version, files = uuid.uuid4().hex, sorted(p for p in folder.rglob("*") if p.is_file())
        written = {path.relative_to(folder).as_posix(): path for path in files}
        for name, path in written.items():
            place, data = f"{self._name(folder)}/{version}/{name}", path.read_bytes()
            self._retry(partial(self._write, place, data))
        listed = json.dumps({"below": version, "files": list(written)}).encode()
        self._retry(lambda: self._write(self._name(folder) + LIST, listed))

    def get_folder(self, folder: Path) -> bool:
        """Fetch a folder. A file that is listed and lost is left out: its reader says what that means."""
        if folder.exists():
            return True
        if (listed := self._list(folder)) is None:
            return False
        fresh = folder.with_name(folder.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for name in listed["files"]:
            place = f"{self._name(folder)}/{listed['below']}/{name}"
            if (data := self._retry(partial(self._read, place))) is not None:
                (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                (fresh / name).write_bytes(data)
        durable.make_folder(folder.parent)
        durable.move_in(fresh, folder)
        return True

    def has_folder(self, folder: Path) -> bool:
        return folder.exists() or self._list(folder) is not None

    def _list(self, folder: Path) -> dict[str, Any] | None:
        """Return a folder's list. Names in it become paths: a list with one that leads elsewhere is empty."""
        text = self._retry(lambda: self._read(self._name(folder) + LIST))
        if text is None:
            return None
        try:
            listed = json.loads(text)
            names = [listed["below"], *listed["files"]]
            safe = all(".." not in Path(name).parts and not Path(name).is_absolute() for name in names)
        except (ValueError, TypeError, LookupError):
            safe = False
        return listed if safe else {"below": "", "files": []}

    def remove(self, path: Path) -> None:
        name = self._name(path)
        for path_in_store in (name + LIST, name):
            self._retry(partial(self._delete, path_in_store))

    def check(self) -> None:
        """Write and delete an object, without waiting: a misspelt bucket would be waited for in vain."""
        probe = f"{self.prefix}/probe-{uuid.uuid4().hex}"
        self._retry(lambda: self._write(probe, b"a driver was here"), patient=False)
        self._retry(lambda: self._delete(probe), patient=False)

    def _name(self, path: Path) -> str:
        return f"{self.prefix}/{path.relative_to(self.root).as_posix()}"

    def _write(self, name: str, data: bytes) -> None:
        if self.store.type_name == "local":
            durable.make_folder(Path(name).parent)
            durable.write(Path(name), data)
            return
        if self.store.type_name.startswith("py::"):  # object stores have no folders
            self.store.create_dir(name.rpartition("/")[0], recursive=True)
        with self.store.open_output_stream(name) as stream:
            stream.write(data)

    def _read(self, name: str) -> bytes | None:
        try:
            with self.store.open_input_file(name) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def _delete(self, name: str) -> None:
        from pyarrow.fs import FileType

        kind = self.store.get_file_info(name).type
        if kind == FileType.File:
            self.store.delete_file(name)
        elif kind == FileType.Directory:
            self.store.delete_dir(name)

    def _retry(self, call: Callable[[], R], patient: bool = True) -> R:
        """Return what a call returns, tried again while the store is away. Raises Failure."""
        try:
            return retry(call, PATIENCE_S if patient else 0.0, pause_s=RETRY_S)
        except OSError as error:
            raise Failure(f"{VARIABLE}: {masked(self.uri)}: {one_line(error)}") from None


def _open(uri: str) -> tuple[FileSystem, str]:
    from pyarrow import ArrowInvalid, fs

    place = urlparse(uri)
    if not place.scheme or ":" in place.netloc.rpartition("@")[0] or SECRET.search(place.query):
        rule = "a URI such as s3://BUCKET/FOLDER, with no password in it: each machine has its own"
        raise UserError(f"{VARIABLE}: must be {rule}")
    try:
        try:
            store, prefix = fs.FileSystem.from_uri(uri)
        except ArrowInvalid:  # a kind that pyarrow itself does not know
            from fsspec.core import url_to_fs  # type: ignore[import-untyped]

            filesystem, prefix = url_to_fs(uri)
            store = fs.PyFileSystem(fs.FSSpecHandler(filesystem))
    except Exception as error:  # whatever of a library that is not there, or of a region
        where = masked(f"{place.scheme}://{place.netloc}")
        raise UserError(f"{VARIABLE}: {where}: {one_line(error)}") from None
    return store, str(prefix).rstrip("/")
