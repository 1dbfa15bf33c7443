"""`make test-latest` without a package index: what is kept, what goes, and what is said."""

import runpy
from importlib.metadata import version

import pytest

from tests import ROOT

TOOL = runpy.run_path(str(ROOT / "requirements/latest.py"))
PINNED = {"numpy": "2.4.6", "mlflow": "3.17.2", "torch": "2.13.0+cpu", "sympy": "1.14"}


class Fake:
    """An environment. newest: of each library. missing: cannot be installed. broken: pairs with which tests fail."""

    def __init__(self, newest, missing=(), broken=()):
        self.installed, self._newest, self.missing, self.broken = dict(PINNED), newest, missing, broken

    def versions(self):
        return dict(self.installed)

    def newest(self, name):
        return self._newest.get(name, PINNED[name].partition("+")[0])

    def install(self, name, version):
        if (name, version) in self.missing:
            return "ERROR: No matching distribution found for it"
        self.installed |= {name: version, f"{name}-bindings": "1"}
        return ""

    def restore(self, versions):
        self.installed = dict(versions)

    def failures(self):
        return next((f"FAILED {pair}" for pair in self.broken if pair in self.installed.items()), "")


def tried(**options):
    environment = Fake(**options)
    lines, is_broken = TOOL["try_each"](environment, ("numpy", "mlflow", "torch"))
    return lines, is_broken, environment.installed


def test_what_passes_stays():
    lines, is_broken, installed = tried(newest={"numpy": "2.5.5"})
    assert (lines[0], is_broken) == ("numpy 2.5.5 passes, in place of 2.4.6", False)
    assert lines[1:] == ["mlflow 3.17.2: the newest is pinned", "torch 2.13.0: the newest is pinned"]
    assert installed["numpy"] == "2.5.5"


@pytest.mark.parametrize("pair", [("numpy", "2.5.5"), ("mlflow", "3.18.0"), ("torch", "2.15.0")])
def test_the_pair_that_breaks_is_named_and_goes_with_what_it_brought(pair):
    name, version = pair
    newest = {"numpy": "2.5.5", "mlflow": "3.18.0", "torch": "2.15.0"}
    lines, is_broken, installed = tried(newest=newest, broken=[pair])
    kept = {other: version for other, version in newest.items() if other != name}
    brought = {f"{other}-bindings": "1" for other in kept}
    assert is_broken and installed == PINNED | kept | brought
    (line,) = (line for line in lines if "breaks" in line)
    assert line == f"{name} {version} breaks what {PINNED[name]} does not: FAILED {pair}"


def test_what_the_index_has_in_part_is_no_breakage():
    lines, is_broken, installed = tried(newest={"mlflow": "3.18.0"}, missing=[("mlflow", "3.18.0")])
    assert lines[1] == "mlflow 3.18.0: cannot be installed: ERROR: No matching distribution found for it"
    assert not is_broken and installed == PINNED


def test_no_library_is_blamed_for_what_fails_without_it():
    lines, is_broken, _ = tried(newest={"numpy": "2.5.5"}, broken=[("sympy", "1.14")])
    assert is_broken and lines == ["the pinned versions fail by themselves: FAILED ('sympy', '1.14')"]


def test_what_is_installed_here_has_its_versions():
    versions = TOOL["This"]().versions()
    assert versions["torch"] == version("torch") and not any(name.startswith("adder-search") for name in versions)
