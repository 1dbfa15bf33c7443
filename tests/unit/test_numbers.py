"""Numbers that people read have commas: of parameters, of seeds, of right answers."""

import re
from dataclasses import replace

import pytest

from model import preset
from search.cli.options import name_of
from search.cli.render import status
from search.cli.study import _budget_lines
from search.run.estimate import estimate
from search.store.home import Home
from search.study.file import load_study
from tests import PLUGINS, ROOT, needs_plugins
from tests.unit.test_counting import FAILED, GROKKED, overview, rows

BARE = re.compile(r"(?<![\w,.])(?<!RTX )(?<!at )\d{4,}(?![\w.,]*\d)")
"""A number of four digits or more without commas; of a GPU's name and a screen's (trainer/stopping/screen.py) none."""
COUNT = re.compile(
    r"\{[^{}:(]*\b(?:params|numbers|correct|seeds|grokked)\b[^{}:(]*\} (?:parameters|numbers|seeds|right)\b"
)
"""Of an f-string: a count before its noun, without a format."""
WIDE = replace(preset("777p"), width=14)


@pytest.mark.parametrize("name", ["constraints", "atlas", pytest.param("module", marks=needs_plugins)])
def test_a_plan_has_commas(name, tmp_path):
    text = estimate(load_study(name), Home(tmp_path))
    assert not BARE.findall(text) and re.search(r"seeds  .*[\d,]+", text), text


def test_counts_of_seeds_and_numbers_have_commas():
    seeds = rows(*[GROKKED] * 1_200, *[FAILED] * 1_300)
    texts = [status(overview(seeds), []), name_of(WIDE), *_budget_lines("wide", WIDE)]
    assert not BARE.findall("\n".join(texts)), texts
    assert "1,200 of 2,500 grokked" in texts[0] and texts[1].startswith("1,946 parameters")


def test_no_line_of_the_program_prints_a_bare_count():
    packages = ("search", "model", "trainer", *PLUGINS)
    texts = {path: path.read_text() for package in packages for path in (ROOT / package).rglob("*.py")}
    raised = re.compile(r"raise \w+\(\s*f?\".*")  # of a wrong θ: its numbers are few
    found = {str(path): COUNT.findall(raised.sub("", text)) for path, text in texts.items()}
    assert not {path: lines for path, lines in found.items() if lines}
