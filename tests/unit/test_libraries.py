"""A library in a version that setup.cfg excludes is refused in one line before anything is imported."""

from importlib import metadata

import pytest

from search.cli import surroundings
from tests.commands import call, fails_with_one, says

pytestmark = pytest.mark.usefixtures("here", "asked_again")
REQUIRED = ["torch>=2.13,!=2.15.*", "ray[tune]>=2.60", "pytest>=8 ; extra == 'test'"]


@pytest.fixture
def asked_again():
    """What an earlier command found is not remembered."""
    surroundings.check_libraries.cache_clear()
    yield
    surroundings.check_libraries.cache_clear()


@pytest.fixture
def installed(monkeypatch):
    """Versions by name, as importlib.metadata would find them; changed by tests."""
    versions = {"torch": "2.13.0+cpu", "ray": "2.60.0", "pytest": "7.0"}

    def version(name):
        if not versions.get(name):
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "requires", lambda name: REQUIRED)
    monkeypatch.setattr(metadata, "version", version)
    return versions


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"torch": "2.15.1+cu130"}, "torch 2.15.1+cu130: pip install 'torch>=2.13,!=2.15.*'"),
        ({"ray": "2.59.1"}, "ray 2.59.1: pip install 'ray[tune]>=2.60'"),
        (
            {"torch": "2.12.0", "ray": None},
            "torch 2.12.0, ray is missing: pip install 'torch>=2.13,!=2.15.*' 'ray[tune]>=2.60'",
        ),
    ],
)
@pytest.mark.parametrize("command", [("run", "smoke"), ("verify", "nothing"), ("status",)])
def test_what_is_known_to_break_is_refused_at_start(command, changed, said, installed):
    installed.update(changed)
    assert fails_with_one(1, *command) == f"adder-search does not work with {said}"


@pytest.mark.parametrize("version", ["2.13.0", "2.14.0.dev20261101", "2.16.0+cu130"])
def test_what_is_not_known_to_break_is_not_refused(version, installed):
    installed["torch"] = version
    surroundings.check_libraries()


def test_what_needs_no_library_is_answered_all_the_same(installed):
    installed["ray"] = "1.0"
    call("studies", code=0)


def test_without_an_installation_nothing_is_known(monkeypatch):
    def requires(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    surroundings.check_libraries()


PINNED = "*constraints.txt has versions that work"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("from ray import GoneClient", f"cannot import name 'GoneClient' from 'ray' (*): ray 2.60.0; {PINNED}"),
        ("import torch.gone", f"No module named 'torch.gone': torch 2.13.0+cpu; {PINNED}"),
        ("import optuna_gone", f"No module named 'optuna_gone': optuna_gone is not installed; {PINNED}"),
        ("import reports.gone", "*'reports.gone': a folder of adder-search is missing; install it again"),
    ],
)
def test_what_cannot_be_imported_is_one_line(statement, said, installed, monkeypatch):
    monkeypatch.setattr("search.cli.listed.Listed.load", lambda listed: exec(statement))
    line = fails_with_one(1, "run", "smoke")
    assert says(line, said), line


def test_what_is_installed_here_is_what_setup_cfg_asks_for():
    assert any(line.startswith("torch>=") for line in surroundings._required())
    surroundings.check_libraries()
