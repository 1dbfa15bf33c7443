"""Names of configurations say what tells them apart."""

import pytest

from search.study.file import parse_study
from search.study.naming import names_of
from search.study.trial import Configuration

HEAD = "name: s\nmodel: 57p\nseeds: {first: 0, count: 2}\n"
SEARCH = """
space:
  recipe.fade_start: {int: [5000, 20000]}
  recipe.fade_end: {int: [1000, 9000], after: recipe.fade_start}
  recipe.weight_decay: {float: [0.003, 0.03], log: true}
  model.shared_norm: {choice: [true, false]}
"""
LISTS = {
    "configurations: [{recipe: {lr: 0.02}}, {recipe: {lr: 0.0125}, name: slow}]": ["lr 0.02", "slow"],
    "toggle: [shared_norm]": ["57p", "67 parameters (57p without shared_norm)"],
    "configurations: [{}, {model: 67p}]": ["57p", "67p"],
    "configurations: [{}, {model: 67p}, {model: 67p, recipe: {lr: 0.01}}]": [
        "57p", "67p, lr 0.02", "67p, lr 0.01",
    ],
    "combine: [tie_vo, rank1_out]": ["none of them", "tie_vo", "rank1_out", "tie_vo + rank1_out"],
    "recipe: {steps: 2000}": ["57p"],
}  # fmt: skip


def test_a_searched_configuration_is_named_by_what_is_searched():
    study = parse_study(HEAD + SEARCH, "s")
    numbers = {"recipe.fade_start": 5000, "recipe.fade_end": 7000, "recipe.weight_decay": 0.0140159}
    made = [
        Configuration(*study.configuration(study.resolved(numbers | {"model.shared_norm": on})))
        for on in (False, True)
    ]
    assert list(names_of(study, made).values()) == [
        f"fade 5,000 to 12,000, decay 0.014, shared_norm {word}" for word in ("off", "on")
    ]
    near = Configuration(*study.configuration(study.resolved(numbers | {"recipe.weight_decay": 0.01402,
                                                                       "model.shared_norm": True})))  # fmt: skip
    names = names_of(study, [made[1], near])
    assert names[near.key] == f"fade 5,000 to 12,000, decay 0.014, shared_norm on ({near.key[:6]})"


@pytest.mark.parametrize(("text", "names"), LISTS.items())
def test_listed_configurations_are_named_by_what_differs(text, names):
    study = parse_study(HEAD + text, "s")
    listed = names_of(study, (Configuration(*pair) for pair in study.listed))
    assert sorted(listed.values()) == sorted(names)
