"""What one process has compiled, another takes from the cache."""

import os
from contextlib import contextmanager
from pathlib import Path

import pytest
import ray
import yaml

from model import PRESETS
from search.errors import UserError
from search.run import engine
from search.run.packing import check_resources
from search.study.schema import Resources
from tests.commands import adder_search, fails_with_one
from tests.homes import two_studies
from trainer import Recipe
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.engine.torch_backend import TorchBackend
from trainer.files.installed import cache_folder, missing_for_compilation

STUDY = {
    "name": "shared",
    "model": "57p",
    "recipe": {"steps": 20, "batch": 16, "eval_every": 20},
    "seeds": {"first": 1, "count": 3},
    "resources": {"cpu": 1, "gpu": 0, "slots": 1, "seeds_per_trial": 1},
}


@pytest.mark.full
@pytest.mark.end_to_end
@pytest.mark.skipif(bool(missing_for_compilation()), reason=f"needs {missing_for_compilation()}")
def test_three_trials_of_one_spec_build_the_engine_once(tmp_path):
    """Two of them at the same time, where there are two cores. A compiler of ours counts."""
    file, home, calls = tmp_path / "study.yaml", tmp_path / "home", tmp_path / "calls"
    file.write_text(yaml.safe_dump(STUDY))
    compiler = tmp_path / "g++"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexec g++ "$@"\n')
    compiler.chmod(0o755)
    empty = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "CXX": str(compiler)}
    said = adder_search("run", str(file), "--home", str(home), cwd=tmp_path, environment=empty)
    assert said.code == 0, said
    assert len(list((home / "artifacts" / "shared").glob("*/artifacts/trials/*"))) == 3
    assert len(calls.read_text().splitlines()) == 2, "the engine and 57p's kernel"
    assert not list(home.rglob("*.so")), "programs are no part of a home"


# ---- whose programs are loaded: they are code


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
        ("XDG_CACHE_HOME", "", "me/.cache/adder-search"),
        ("TORCHINDUCTOR_CACHE_DIR", "own", "own"),
        ("TORCHINDUCTOR_CACHE_DIR", "", "me/.cache/adder-search"),
    ],
)
def test_programs_are_each_users_own(name, value, found, user, monkeypatch):
    if name:
        relative = not value or value.startswith(".")
        monkeypatch.setenv(name, value if relative else str(user / value))
    assert cache_folder() == user / found
    assert (user / found).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_a_cache_that_others_can_write_is_refused(mode, user):
    """Whoever can write it can have any code run: a sticky bit does not keep them from adding to it."""
    folder = user / "me" / ".cache" / "adder-search"
    folder.mkdir(parents=True)
    folder.chmod(mode)
    with pytest.raises(ValueError, match=r"adder-search others can write there.*TORCHINDUCTOR_CACHE_DIR"):
        cache_folder()
    folder.chmod(0o755)
    assert cache_folder() == folder


def test_another_users_cache_is_refused(user, monkeypatch):
    me = os.geteuid()
    cache_folder()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(ValueError, match=f"belongs to user {me}"):
        cache_folder()


def test_a_link_to_what_others_can_write_is_refused(user, monkeypatch):
    (user / "shared").mkdir()
    (user / "shared").chmod(0o777)
    (user / "link").symlink_to(user / "shared")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(user / "link"))
    with pytest.raises(ValueError, match="others can write there"):
        cache_folder()


def test_a_cache_that_cannot_be_made_is_told_in_one_line(user, monkeypatch):
    (user / "me").write_text("no folder")
    with pytest.raises(ValueError, match=r"cannot be made.*TORCHINDUCTOR_CACHE_DIR"):
        cache_folder()


def test_a_run_says_so_before_it_begins(user, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (user / "me").write_text("no folder")
    check_resources(Resources(gpu=0, compiled=False))
    with pytest.raises(UserError, match=r"^resources\.compiled: .*cannot be made"):
        check_resources(Resources(gpu=0))


def test_a_bank_hands_the_checked_folder_to_the_compiler(user):
    """torch's own choice would be a folder of /tmp, where anyone can be first."""
    TorchBackend(PRESETS["57p"], Recipe(), "cpu", compiled=True)
    assert os.environ.pop("TORCHINDUCTOR_CACHE_DIR") == str(user / "me/.cache/adder-search")


# ---- a home from elsewhere


@contextmanager
def no_ray(taken):
    """ray.init as a home has it called."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, "init", lambda **options: taken.append(options))
        patch.setattr(ray, "shutdown", lambda: None)
        yield


def test_nothing_of_a_home_is_code_for_ray(home, user, monkeypatch):
    """Neither compiled programs nor a module that would be found before ours."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for folder in ("ray/working-dir", "cache", "ray"):
        (home.path / folder).mkdir(parents=True, exist_ok=True)
        (home.path / folder / "torch.py").write_text("print('taken over')")
    taken = []
    with no_ray(taken), engine._ray():
        environment = taken[0]["runtime_env"]
        working = Path(environment["working_dir"])
        assert working.is_dir() and not list(working.iterdir())
        assert not working.is_relative_to(home.path)
    assert not any(str(home.path) in value for value in environment["env_vars"].values())
    assert not working.exists()


def test_rerun_takes_no_programs_from_a_home(here, user, monkeypatch):
    """A checkpoint lies where a home with programs lies."""
    two_studies("adder-runs")
    (here / "adder-runs" / "cache").mkdir()
    (user / "me").write_text("no folder")  # so that it says where it looks
    spec = PRESETS["57p"]
    papers = {"provenance": {"trained": "from scratch"}, "recipe": Recipe().as_dict(), "step": 2_000}
    Checkpoint(spec, spec.initial(3), seed={"init_seed": 3, "data_seed": 3}, **papers).save(Path("trained"))
    assert f"{user}/me/.cache/adder-search" in fails_with_one(2, "rerun", "trained")
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ
