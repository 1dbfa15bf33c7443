"""The examples in docstrings are right."""

import doctest
from importlib import import_module

import pytest

from tests import ROOT

PACKAGES = ("model", "trainer", "search", "adders", "compress")
FILES = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
WITH_EXAMPLES = sorted(path for path in FILES if ">>> " in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_right(path):
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    results = doctest.testmod(import_module(name))
    assert results.attempted and not results.failed


def test_functions_that_readme_names_have_an_example():
    from model import adderboard, decode, presets, spec

    for function in (presets.preset, presets.preset_name, adderboard.verify, decode.add, spec.make_spec):
        assert ">>> " in function.__doc__, function
