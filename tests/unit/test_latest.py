"""`make test-latest` without a package index: what is kept, what goes, and what is said."""

import runpy
from importlib.metadata import version

import pytest

from tests import ROOT

TOOL = runpy.run_path(str(ROOT / "requirements/latest.py"))
PINNED = {"numpy": "2.4.6", "mlflow": "3.17.2", "torch": "2.13.0+cpu", "sympy": "1.14"}


class Fake:
    """An environment. newer: versions of each library. missing: cannot be installed. broken: pairs that fail."""

    def __init__(self, newer, missing=(), broken=()):
        self.installed, self._newer, self.missing, self.broken = dict(PINNED), newer, missing, broken

    def versions(self):
        return dict(self.installed)

    def newer(self, name, version):
        assert version == PINNED[name]
        return self._newer.get(name, [])

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


REFUSED = "cannot be installed: ERROR: No matching distribution found for it"


def test_what_passes_stays_and_of_what_the_index_has_in_part_the_version_before_is_tried():
    """That is no breakage."""
    newer = {"numpy": ["2.5.5", "2.5.0"], "mlflow": ["3.18.0", "3.17.9"], "torch": ["2.15.0"]}
    lines, is_broken, installed = tried(newer=newer, missing=[("mlflow", "3.18.0"), ("torch", "2.15.0")])
    assert lines == [
        "numpy 2.5.5 passes, in place of 2.4.6",
        f"mlflow 3.18.0: {REFUSED}",
        "mlflow 3.17.9 passes, in place of 3.17.2",
        f"torch 2.15.0: {REFUSED}",
        "torch 2.13.0+cpu: the newest that can be installed is pinned",
    ]
    kept = {"numpy": "2.5.5", "numpy-bindings": "1", "mlflow": "3.17.9", "mlflow-bindings": "1"}
    assert not is_broken and installed == PINNED | kept


@pytest.mark.parametrize("pair", [("numpy", "2.5.5"), ("mlflow", "3.18.0"), ("torch", "2.15.0")])
def test_the_pair_that_breaks_is_named_and_goes_with_what_it_brought(pair):
    name, version = pair
    newest = {"numpy": "2.5.5", "mlflow": "3.18.0", "torch": "2.15.0"}
    lines, is_broken, installed = tried(newer={name: [v] for name, v in newest.items()}, broken=[pair])
    kept = {other: version for other, version in newest.items() if other != name}
    brought = {f"{other}-bindings": "1" for other in kept}
    assert is_broken and installed == PINNED | kept | brought
    (line,) = (line for line in lines if "breaks" in line)
    assert line == f"{name} {version} breaks what {PINNED[name]} does not: FAILED {pair}"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            "ERROR: Cannot install torch==2.15.0\n\nThe conflict is caused by:\n    The user requested torch==2.15.0\n"
            "    The user requested (constraint) torch<=2.14.1\n\nTo fix this you could\n\nERROR: ResolutionImpossible",
            "The user requested torch==2.15.0; The user requested (constraint) torch<=2.14.1",
        ),
        ("WARNING: x\nERROR: No matching distribution\nWARNING: y\n", "ERROR: No matching distribution"),
    ],
)
def test_why_pip_refused_is_a_line(said, why):
    assert TOOL["refusal_of"](said) == why


@pytest.mark.parametrize("pinned", ["2.13.0", "2.13.0+cpu"])
def test_newer_versions_are_read_from_what_pip_says(pinned):
    said = "torch (2.15.0)\nAvailable versions: 2.15.0, 2.14.1, 2.13.0+cpu, 2.13.0, 2.9.1\n  INSTALLED: 2.13.0+cpu\n"
    assert TOOL["newer_of"](said, pinned) == ["2.15.0", "2.14.1"]


def test_no_library_is_blamed_for_what_fails_without_it():
    lines, is_broken, _ = tried(newer={"numpy": ["2.5.5"]}, broken=[("sympy", "1.14")])
    assert is_broken and lines == ["the pinned versions fail by themselves: FAILED ('sympy', '1.14')"]


def test_what_is_installed_here_has_its_versions():
    versions = TOOL["This"]().versions()
    assert versions["torch"] == version("torch") and not any(name.startswith("adder-search") for name in versions)
