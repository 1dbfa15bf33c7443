"""Where a driver and its workers leave files for each other: a folder that all see, or an object store.

Each has its files in a folder of its own. An object's name is a file's path below that folder: what is
written is written as ever (trainer/files/durable.py) and then put into the store, what is read is fetched first. In
a shared folder there is nothing to do. A store has no renaming: a folder is there once an object lists its
files, which is written last; and a store shows an object whole or not at all.
"""

from __future__ import annotations

import json
import re
import shutil
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlparse

from search.errors import Failure, UserError, masked
from trainer.files import durable

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

VARIABLE = "ADDER_SEARCH_DEPOT"
PATIENCE_S, RETRY_S = 600.0, 2.0
"""How long a store that is away is waited for, and how often it is asked."""
SECRET = re.compile(r"(key|secret|token|password|sas)[^=&]*=", re.IGNORECASE)
LIST = ".list"
"""What a folder's list is called: its name and this."""

R = TypeVar("R")


class Shared:
    """A folder that driver and workers see: what is written is there."""

    keeps = False
    """Whether parts stay here when they have been recorded, and MLflow gets none."""
    look_s = 0.1
    """How often one looks for something that may come."""

    def put(self, path: Path, patient: bool = True) -> None:
        """Leave a file for the others."""

    def get(self, path: Path, patient: bool = True) -> bool:
        """Have a file as it was left last. Whether there is one."""
        return path.exists()

    def put_folder(self, folder: Path) -> None:
        """Leave a folder and what is in it, whole or not at all."""

    def get_folder(self, folder: Path) -> bool:
        """Have a folder, unless it is here. Whether there is one."""
        return folder.exists()

    def has_folder(self, folder: Path) -> bool:
        """Whether a folder was left."""
        return folder.exists()

    def remove(self, path: Path) -> None:
        """Forget a file, or a folder with all that is below it; what is here stays."""

    def check(self) -> None:
        """Raise Failure where nothing can be left."""


class Depot(Shared):
    """Objects below a URI of any kind that pyarrow or fsspec knows: s3, gs, abfs, file.

    root: the folder of one's own. Passwords are not in the URI; each machine has its own, as its kind of
    store wants them. Calls wait for a store that is away, unless they are not `patient`, and raise Failure.
    """

    keeps, look_s = True, 1.0

    def __init__(self, root: Path, uri: str):
        self.root, self.uri = root, uri
        self.store, self.prefix = _opened(uri)

    def put(self, path: Path, patient: bool = True) -> None:
        data = path.read_bytes()
        self._tried(lambda: self._write(self._name(path), data), patient)

    def get(self, path: Path, patient: bool = True) -> bool:
        found = self._tried(lambda: self._read(self._name(path)), patient)
        if found is not None:
            durable.make_folder(path.parent)
            durable.write(path, found)
        return found is not None

    def put_folder(self, folder: Path) -> None:
        """Of two that leave the same folder at once one is found, whole: each has names of its own."""
        own, files = uuid.uuid4().hex, sorted(p for p in folder.rglob("*") if p.is_file())
        written = {path.relative_to(folder).as_posix(): path for path in files}
        for name, path in written.items():
            place, data = f"{self._name(folder)}/{own}/{name}", path.read_bytes()
            self._tried(partial(self._write, place, data))
        listed = json.dumps({"below": own, "files": list(written)}).encode()
        self._tried(lambda: self._write(self._name(folder) + LIST, listed))

    def get_folder(self, folder: Path) -> bool:
        """A file that is listed and lost is left out: whoever reads the folder says what that means."""
        if folder.exists():
            return True
        if (listed := self._list(folder)) is None:
            return False
        fresh = folder.with_name(folder.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for name in listed["files"]:
            place = f"{self._name(folder)}/{listed['below']}/{name}"
            if (data := self._tried(partial(self._read, place))) is not None:
                (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                (fresh / name).write_bytes(data)
        durable.make_folder(folder.parent)
        durable.move_in(fresh, folder)
        return True

    def has_folder(self, folder: Path) -> bool:
        return folder.exists() or self._list(folder) is not None

    def _list(self, folder: Path) -> dict[str, Any] | None:
        """A folder's list. Names in it become paths: one that leads elsewhere is no name of ours."""
        said = self._tried(lambda: self._read(self._name(folder) + LIST))
        if said is None:
            return None
        try:
            listed = json.loads(said)
            names = [listed["below"], *listed["files"]]
            safe = all(".." not in Path(name).parts and not Path(name).is_absolute() for name in names)
        except (ValueError, TypeError, LookupError):
            safe = False
        return listed if safe else {"below": "", "files": []}

    def remove(self, path: Path) -> None:
        name = self._name(path)
        for gone in (name + LIST, name):
            self._tried(partial(self._delete, gone))

    def check(self) -> None:
        """Leave something and take it away again, at once: who waits for a misspelt bucket waits for ever."""
        probe = f"{self.prefix}/probe-{uuid.uuid4().hex}"
        self._tried(lambda: self._write(probe, b"a driver was here"), patient=False)
        self._tried(lambda: self._delete(probe), patient=False)

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

        found = self.store.get_file_info(name).type
        if found == FileType.File:
            self.store.delete_file(name)
        elif found == FileType.Directory:
            self.store.delete_dir(name)

    def _tried(self, call: Callable[[], R], patient: bool = True) -> R:
        """What a call returns, tried again while the store is away. Raises Failure."""
        until = time.monotonic() + (PATIENCE_S if patient else 0.0)
        while True:
            try:
                return call()
            except OSError as error:
                if time.monotonic() >= until:
                    raise Failure(f"{VARIABLE}: {masked(self.uri)}: {_one_line(error)}") from None
            time.sleep(RETRY_S)


def depot_of(root: Path, uri: str | None) -> Shared:
    """Where files go that are in this folder: to the store of a URI, or nowhere if others see the folder.

    Raises UserError for a URI that names no store, or has a password in it.
    """
    return Depot(root, uri) if uri else Shared()


def _opened(uri: str) -> tuple[FileSystem, str]:
    from pyarrow import ArrowInvalid, fs

    place = urlparse(uri)
    if not place.scheme or "@" in place.netloc or SECRET.search(place.query):
        what = "a URI such as s3://BUCKET/FOLDER, with no password in it"
        raise UserError(f"{VARIABLE}: must be {what}: each machine has its own")
    try:
        try:
            store, prefix = fs.FileSystem.from_uri(uri)
        except ArrowInvalid:  # a kind that pyarrow itself does not know
            from fsspec.core import url_to_fs  # type: ignore[import-untyped]

            known, prefix = url_to_fs(uri)
            store = fs.PyFileSystem(fs.FSSpecHandler(known))
    except Exception as error:  # whatever of a library that is not there, or of a region
        raise UserError(f"{VARIABLE}: {place.scheme}://{place.netloc}: {_one_line(error)}") from None
    return store, str(prefix).rstrip("/")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
