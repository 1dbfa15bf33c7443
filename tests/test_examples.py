"""Examples in docstrings of the models and of what only adders have say what is so."""

import doctest
from importlib import import_module

import pytest

from tests import ROOT

FOLDERS = ("model", "adders")


def with_examples():
    """Return the modules whose text has an example, by dotted name; plug-ins may be deleted."""
    names = []
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            if "\n    >>> " in file.read_text():
                names.append(".".join(file.relative_to(ROOT).with_suffix("").parts))
    return [name.removesuffix(".__init__") for name in names]


@pytest.mark.parametrize("name", with_examples())
def test_examples_say_what_is_so(name):
    found = doctest.testmod(import_module(name))
    assert found.attempted and not found.failed


def test_functions_that_readme_names_have_an_example():
    from model import adderboard, decode, presets, spec

    for function in (presets.preset, presets.preset_name, adderboard.verify, decode.add, spec.make_spec):
        assert ">>> " in function.__doc__, function
