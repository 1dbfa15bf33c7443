"""Examples in docstrings are right, and every function that a page calls from Python has one; studies there can run."""

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

from search.run.entry import prepare
from search.store.home import Home
from search.study.file import parse_study
from tests import PLUGINS, ROOT

PACKAGES = ("model", "trainer", "search", *PLUGINS)
FILES = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
WITH_EXAMPLES = sorted(path for path in FILES if re.search(r"^ +>>> ", path.read_text("utf-8"), re.MULTILINE))
PAGES = ("README.md", "docs/python.md")
OTHERS = {"model": ("add", "make_spec", "preset_name")}
"""What is offered beside what pages call."""


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)


PAGES_OF_STUDIES = ("README.md", "docs/studies.md", "docs/tutorial.md")
STUDIES = [text for page in PAGES_OF_STUDIES for text in blocks(page, "yaml") if text.startswith("name: ")]


@pytest.mark.usefixtures("here", "quick")
@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_right(path):
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    results = doctest.testmod(import_module(name))
    assert results.attempted and not results.failed


def offered():
    """Return what the pages' blocks of Python import from our packages, or call by `search.NAME`."""
    text = "\n".join(block for page in PAGES for block in blocks(page, "python"))
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


@pytest.mark.parametrize("text", STUDIES, ids=lambda text: text.split()[1])
def test_a_study_of_a_page_can_run(text):
    prepare(parse_study(text, "page"), "page", Home(Path("runs")), print)


def test_pages_show_these_studies():
    names = [text.split()[1] for text in STUDIES]
    assert names == ["decay", "rate", "constraints", "again"]
