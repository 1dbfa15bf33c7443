"""`make api`: the pages of what is called from Python are whole, and every link in them leads somewhere."""

import re
from html import unescape
from importlib import import_module
from posixpath import join, normpath
from urllib.parse import unquote

import pytest
from sphinx.cmd.build import main

from tests import ROOT

INTERNAL = re.compile(r'href="(?!https?:)([^"#]*)(?:#([^"]*))?"')


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built pages by name. A warning is an error."""
    folder = tmp_path_factory.mktemp("api")
    assert main(["-W", "--keep-going", "-q", str(ROOT / "docs/api"), str(folder)]) == 0
    return {str(file.relative_to(folder)): file.read_text("utf-8") for file in folder.rglob("*.html")}


@pytest.mark.parametrize("package", ["search", "trainer", "model"])
def test_every_public_name_has_its_place(site, package):
    page = site["index.html" if package == "search" else f"{package}.html"]
    listed = {name.rpartition(".")[2] for name in re.findall(r'<dt class="sig[^>]* id="([\w.]+)"', page)}
    assert set(import_module(package).__all__) <= listed


def test_what_a_page_says_of_arguments_is_a_list(site):
    entry = site["index.html"].partition('id="search.run.entry.run"')[2].partition('<dl class="py')[0]
    names = re.findall(r"<p><strong>(\w+)</strong> ", entry)
    assert names == ["study", "home", "executor", "progress", "max_hours", "fresh", "set", "env"]
    assert "Raises UserError for what cannot be trained" in " ".join(entry.split())


def test_every_link_leads_somewhere(site):
    ids = {name: {unescape(i) for i in re.findall(r'\bid="([^"]+)"', page)} for name, page in site.items()}
    broken = []
    for name, page in site.items():
        folder = name.rpartition("/")[0]
        for target, anchor in INTERNAL.findall(page):
            place = normpath(join(folder, unquote(target))) if target else name
            if place.endswith(".html") and (place not in site or (anchor and unescape(anchor) not in ids[place])):
                broken.append((name, target, anchor))
    assert broken == []
    assert sum(len(INTERNAL.findall(page)) for page in site.values()) > 100
