"""The session folder of a Ray that a run starts: this user's alone, and gone when the run is."""

import os
import stat

import pytest
from filelock import FileLock

from search.errors import Failure
from search.run import ray_session
from search.run.ray_session import private_session
from tests.processes import short_folder
from tests.second_user import NOBODY, need_second_user


@pytest.fixture
def parent(monkeypatch):
    """The folder for temporary files, which all users may write."""
    with short_folder() as folder:
        folder.chmod(0o1777)
        monkeypatch.setenv("RAY_TMPDIR", str(folder))
        yield folder


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def test_folder_and_token_are_this_users_alone(parent):
    before = os.umask(0)
    try:
        with private_session() as (folder, token):
            assert folder.parent.parent == parent and not folder.exists(), "Ray makes it, open to all"
            assert (mode(folder.parent), mode(token), len(token.read_text())) == (0o700, 0o600, 64)
            first = token.read_text()
    finally:
        os.umask(before)
    assert list(parent.iterdir()) == []
    with private_session() as (_, token):
        assert token.read_text() != first


@pytest.mark.parametrize("how", ["others write there", "it is another user's", "it is too long", "missing"])
def test_a_parent_that_others_can_exchange_is_passed_over(how, parent, monkeypatch):
    chosen = parent / ("x" * 40 if how == "it is too long" else "chosen")
    if how != "missing":
        chosen.mkdir()
    if how == "others write there":
        chosen.chmod(0o777)
    if how == "it is another user's":
        need_second_user()
        os.chown(chosen, NOBODY, NOBODY)
    monkeypatch.setenv("RAY_TMPDIR", str(chosen))
    monkeypatch.setattr(ray_session.tempfile, "gettempdir", lambda: str(parent))
    with private_session() as (folder, _):
        assert folder.parent.parent == parent
    monkeypatch.setattr(ray_session, "SYSTEM", str(chosen))
    monkeypatch.setattr(ray_session.tempfile, "gettempdir", lambda: str(chosen))
    with pytest.raises(Failure, match=r"Ray needs a folder of your own, named by RAY_TMPDIR; .*: ") as refused:
        private_session().__enter__()
    assert "\n" not in str(refused.value)
    assert how == "missing" or list(chosen.iterdir()) == []


@pytest.mark.parametrize(("users", "is_taken"), [("0 1000 1", True), ("0 0 4294967295", False)])
def test_in_a_user_namespace_the_owner_without_a_number_may_be_root(users, is_taken, parent, monkeypatch, tmp_path):
    """There /tmp belongs to whoever stands for all users that the namespace does not know."""
    need_second_user()
    for name, text in (("UID_MAP", users), ("OVERFLOW", f"{NOBODY}\n")):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(ray_session, name, tmp_path / name)
    os.chown(parent, NOBODY, NOBODY)
    monkeypatch.setattr(ray_session, "SYSTEM", str(parent))
    monkeypatch.setattr(ray_session.tempfile, "gettempdir", lambda: str(parent))
    if is_taken:
        with private_session() as (folder, _):
            assert folder.parent.parent == parent
    else:
        with pytest.raises(Failure, match=f"belongs to user {NOBODY}"):
            private_session().__enter__()


def test_folders_of_dead_runs_are_removed_and_no_others(parent, tmp_path):
    own = f"ray-{os.geteuid()}-"
    for name in ("dead", "running", "young", "killed"):
        (parent / f"{own}{name}" / "r").mkdir(parents=True)
    (parent / f"{own}killed" / "token").touch()  # it had the lock, a moment ago
    (parent / "ray-1-dead").mkdir()
    (tmp_path / "precious").mkdir()
    (parent / f"{own}link").symlink_to(tmp_path)
    for path in parent.iterdir():
        if path.name not in (f"{own}young", f"{own}killed"):
            os.utime(path, (0, 0), follow_symlinks=False)
    with FileLock(parent / f"{own}running" / "lock"):
        os.utime(parent / f"{own}running", (0, 0))
        with private_session() as (folder, _):
            left = {p.name for p in parent.iterdir()} - {folder.parent.name}
    assert left == {f"{own}running", f"{own}young", f"{own}link", "ray-1-dead"}
    assert (tmp_path / "precious").exists()
