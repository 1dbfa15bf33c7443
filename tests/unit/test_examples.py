"""Examples in docstrings are right, and every function that a page calls from Python has one."""

import doctest
import re
from importlib import import_module

import pytest

from tests import PLUGINS, ROOT

PACKAGES = ("model", "trainer", "search", *PLUGINS)
FILES = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
WITH_EXAMPLES = sorted(path for path in FILES if re.search(r"^ +>>> ", path.read_text("utf-8"), re.MULTILINE))
PAGES = ("README.md", "docs/python.md")
OTHERS = {"model": ("add", "make_spec", "preset_name")}
"""What is offered beside what pages call."""


@pytest.mark.usefixtures("here", "quick")
@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_right(path):
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    results = doctest.testmod(import_module(name))
    assert results.attempted and not results.failed


def offered():
    """Return what the pages' blocks of Python import from our packages, or call by `search.NAME`."""
    blocks = [b for page in PAGES for b in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.S)]
    text = "\n".join(blocks)
    found = {(package, name) for package, names in OTHERS.items() for name in names}
    for package, names in re.findall(r"^from (model|trainer) import (.*)$", text, re.MULTILINE):
        found |= {(package, name) for name in names.split(", ")}
    return found | {("search", name) for name in re.findall(r"\bsearch\.(\w+)\(", text)}


def test_what_pages_call_has_an_example():
    names = offered()
    assert {("search", "run"), ("search", "records"), ("model", "verify"), ("trainer", "Bank")} <= names
    for package, name in sorted(names):
        function = getattr(import_module(package), name)
        assert ">>> " in getattr(function, "__wrapped__", function).__doc__, name
