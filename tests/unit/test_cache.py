"""The folder of compiled programs: each user's own, since what lies there is run."""

import pytest

from trainer.files.installed import cache_folder


@pytest.fixture
def user(tmp_path, monkeypatch):
    """A user who has compiled nothing and set nothing."""
    for name in ("TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("", "", "me/.cache/adder-search"),
        ("XDG_CACHE_HOME", "xdg", "xdg/adder-search"),
        ("XDG_CACHE_HOME", "./relative", "me/.cache/adder-search"),  # as its specification says
        ("TORCHINDUCTOR_CACHE_DIR", "own", "own"),
    ],
)
def test_programs_are_each_users_own(name, value, found, user, monkeypatch):
    if name:
        relative = not value or value.startswith(".")
        monkeypatch.setenv(name, value if relative else str(user / value))
    assert cache_folder() == user / found
    assert (user / found).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o1777, 0o770])
def test_a_cache_that_others_can_write_is_refused(mode, user):
    """Whoever can write it can have any code run: a sticky bit does not keep them from adding to it."""
    folder = user / "me" / ".cache" / "adder-search"
    folder.mkdir(parents=True)
    folder.chmod(mode)
    with pytest.raises(ValueError, match=r"adder-search others can write there.*TORCHINDUCTOR_CACHE_DIR"):
        cache_folder()
    folder.chmod(0o755)
    assert cache_folder() == folder
