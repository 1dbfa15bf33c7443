"""What a power cut may leave of a folder, at any moment of what is done in it: a file system that keeps what
was synced, and of the rest as little or as much as it likes.

Pillai and others, "All File Systems Are Not Created Equal", OSDI 2014 (ALICE), do this to recorded system
calls. Here the folder itself is what a process sees; beside it stands what fsync has promised: of each file
its bytes, of each folder its names. Before each call that changes names, opens a file for writing or syncs,
the folders are noted that could be found after a cut at that moment. A file that is opened to be written anew
has lost its bytes.

SQLite syncs by itself, in C: its files are taken to be on disk as they are.
"""

import builtins
import errno
import io
import os
import sqlite3
import threading
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

CHANGING = ("rename", "replace", "unlink", "remove", "rmdir", "mkdir", "fsync")
SQLITE = b"SQLite format 3\0"
OF_SQLITE = ("records.db", "-journal", ".new-journal")


@dataclass
class Found:
    """What could be found after a cut at these moments, counted from 1, and how it came about at first."""

    image: dict[str, bytes | None]
    """Files by relative path, and folders (None)."""
    how: str
    moments: list[int] = field(default_factory=list)

    def restore(self, folder):
        """The folder as it is found."""
        folder.mkdir(parents=True)
        for name, data in self.image.items():
            if data is None:
                (folder / name).mkdir()
            else:
                (folder / name).write_bytes(data)
        return folder


@contextmanager
def exchanged(changing, opening):
    """Put something in the place of each call that changes names or syncs, and of `open`."""
    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGING:
            patch.setattr(os, name, changing(getattr(os, name)))
        opened = opening(io.open)
        for module in (io, builtins):
            patch.setattr(module, "open", opened)
        yield


@contextmanager
def failing(at):
    """Have the call of this number, from 1, fail of those that change names, sync, or open a file for writing.

    Yields the calls: there were fewer if none failed.
    """
    calls = []

    def watched(call, changes=lambda *given: True):
        def watching(*given, **more):
            if changes(*given):
                calls.append(call.__name__)
                if len(calls) == at:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
            return call(*given, **more)

        return watching

    writes = lambda file, mode="r", *_: set(mode) & set("wax+")  # noqa: E731
    with exchanged(watched, lambda call: watched(call, writes)):
        yield calls


class Disk:
    """A folder whose power may be cut.

    names: by a folder's inode the inodes of what is in it, by name. contents: a file's bytes by its inode.
    """

    def __init__(self, root):
        self.root, self.moments, self.lock = root, 0, threading.RLock()
        self.images = {}
        self.kept = {}
        self.names, self.contents = self._look()  # what is there at first is on disk
        for path in (root, *root.rglob("*")):
            self._keep(os.open(path, os.O_RDONLY))

    @contextmanager
    def recording(self):
        with exchanged(self._watched, self._opening):
            yield
        self._note("at the end")
        for handle in self.kept.values():
            os.close(handle)

    def _watched(self, call):
        def watched(*given, **more):
            with self.lock:  # no other thread's call between the moment, the call and what it promises
                self._note(f"before {call.__name__}({', '.join(map(str, given))})")
                done = call(*given, **more)
                if call.__name__ == "fsync":
                    self._synced(given[0] if isinstance(given[0], int) else given[0].fileno())
                return done

        return watched

    def _opening(self, call):
        def opening(file, mode="r", *given, **more):
            with self.lock:
                if set(mode) & set("wax+"):
                    self._note(f"before open({file}, {mode})")
                opened = call(file, mode, *given, **more)
                if "w" in mode:
                    self.contents.pop(os.fstat(opened.fileno()).st_ino, None)
                return opened

        return opening

    def _synced(self, handle):
        """A file's bytes are on disk, or a folder's names."""
        names, contents = self._look()
        inode = os.fstat(handle).st_ino
        if inode not in self.kept:
            self._keep(os.dup(handle))
        for known, new in ((self.names, names), (self.contents, contents)):
            if inode in new:
                known[inode] = new[inode]

    def _keep(self, handle):
        """Hold what is on disk open, so that no other file gets its inode once its name is gone."""
        self.kept[os.fstat(handle).st_ino] = handle

    def _look(self):
        """The folder as a process sees it at one moment."""
        with ExitStack() as held:
            for database in self.root.glob("*.db"):  # who reads lets no other thread commit meanwhile
                reader = sqlite3.connect(f"file:{database}?mode=ro", uri=True, isolation_level=None)
                held.callback(reader.close)
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return self._walk()

    def _walk(self):
        names = {}
        contents = {}
        for folder, _, _ in os.walk(self.root):
            inside = names[Path(folder).stat().st_ino] = {}
            for entry in os.scandir(folder):
                inside[entry.name] = entry.inode()
                with suppress(FileNotFoundError):  # a journal: its transaction has come to nothing
                    if entry.is_file():
                        contents[entry.inode()] = Path(entry).read_bytes()
        return names, contents

    def _note(self, moment):
        with self.lock:
            self.moments += 1
            names, contents = self._look()
            self._forget(names, contents)
            self._take_databases(names, contents)
            for how, image in self._possible(names, contents):
                mark = hash(tuple(image.items()))
                found = self.images.setdefault(mark, Found(image, f"{moment}: {how}"))
                found.moments.append(self.moments)

    @property
    def found(self):
        """Each once, in the order in which they became possible."""
        return list(self.images.values())

    def _forget(self, names, contents):
        """What is gone and was never synced: its inode is another's now, a folder's that was a journal's."""
        self.names = {i: inside for i, inside in self.names.items() if i in self.kept or i in names}
        self.contents = {i: data for i, data in self.contents.items() if i in self.kept or i in contents}

    def _take_databases(self, names, contents):
        for inode, data in contents.items():
            if data.startswith(SQLITE):
                self.contents[inode] = data
        for folder, inside in names.items():
            known = self.names.setdefault(folder, {})
            for name in {*inside, *known}:
                if name.endswith(OF_SQLITE) or name.startswith("mlflow-"):
                    known.pop(name, None)
                    if name in inside:
                        known[name] = inside[name]
                        self.contents[inside[name]] = contents[inside[name]]

    def _possible(self, names, contents):
        torn = {
            inode: data if data == self.contents.get(inode) else data[: len(data) // 2]
            for inode, data in contents.items()
        }
        root = self.root.stat().st_ino
        yield "nothing but what was synced", _image(root, self.names, self.contents)
        yield "names, and no bytes", _image(root, names, self.contents)
        yield "names, and half of the bytes", _image(root, names, torn)
        yield "all", _image(root, names, contents)
        for folder, inside in names.items():
            before = self.names.get(folder, {})
            for name in sorted({*inside, *before}):
                if inside.get(name) != before.get(name):
                    merged = self.names | {folder: _one(name, before, inside)}
                    yield f"of the names only {name}", _image(root, merged, torn | self.contents)


def _one(name, before, now):
    """A folder's names before, and now as to one of them; what was renamed in it has one of its two names."""
    moved = {k: v for k, v in now.items() if k == name or (name not in now and v == before[name])}
    gone = {k for k, v in before.items() if k not in now and (k == name or v in moved.values())}
    return {k: v for k, v in before.items() if k not in gone} | moved


def _image(folder, names, contents, above=""):
    found = {}
    for name, inode in sorted(names.get(folder, {}).items()):
        if inode in contents or inode not in names:
            found[above + name] = contents.get(inode, b"")
        else:
            found[above + name] = None
            found |= _image(inode, names, contents, f"{above}{name}/")
    return found
